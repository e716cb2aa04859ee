use cri_proto::{pinion::UntagRequest, v1};

use crate::{Client, Failure, lookup, output::Outcomes};

/// Arguments of `pinion rmi`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Remove images even if containers use them
    #[arg(short, long)]
    force: bool,
    /// Names or ids; a name removes only that tag of the image, an id removes all tags
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for name in &args.images {
        let outcome = remove(&mut client, name, args.force).await;
        outcomes.add(name, outcome)?;
    }
    outcomes.finish()
}

/// Removes an image or one of its tags. Unlike RemoveImage of the CRI, fails if the image does not exist.
async fn remove(client: &mut Client, name: &str, force: bool) -> Result<(), Failure> {
    let spec = Some(v1::ImageSpec { image: name.to_owned(), ..Default::default() });
    let status = client.images.image_status(v1::ImageStatusRequest { image: spec.clone(), verbose: false }).await?;
    let Some(image) = status.into_inner().image else {
        return Err(Failure::new(format!("no image {name:?}; see: pinion images")));
    };
    let last = image.repo_tags.len() <= 1 || !image.repo_tags.iter().any(|tag| is_same(tag, name));
    if last && !force {
        let users = lookup::containers(client).await?.into_iter().find(|container| container.image_id == image.id);
        if let Some(container) = users {
            let user = lookup::name_of(&container);
            return Err(Failure::new(format!(
                "remove image {name:?}: container {user:?} uses it; remove that first or use: pinion rmi -f {name}"
            )));
        }
    }
    client.native.untag(UntagRequest { name: name.to_owned() }).await?;
    Ok(())
}

/// Whether a name refers to a full tag: `busybox` refers to `docker.io/library/busybox:latest`.
fn is_same(tag: &str, name: &str) -> bool {
    let default_tag = if name.rsplit('/').next().is_some_and(|last| last.contains(':')) { "" } else { ":latest" };
    let full = format!("{name}{default_tag}");
    tag == full || tag.strip_suffix(&full).is_some_and(|front| front.ends_with('/'))
}
