use cri_proto::{pinion::UntagRequest, v1};

use crate::{Client, Failure, lookup, output::Each};

/// Arguments of `pinion rmi`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Even if containers use it
    #[arg(short, long)]
    force: bool,
    /// Names or ids; of an image with several tags only the one named goes, by its id all go
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut each = Each::new(client.json);
    for name in &args.images {
        let outcome = remove(&mut client, name, args.force).await;
        each.add(name, outcome)?;
    }
    each.end()
}

/// The CRI's own removal succeeds for what is not there; people want to know.
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
                "image {name:?} is used by container {user:?}; remove that first or use: pinion rmi -f {name}"
            )));
        }
    }
    client.native.untag(UntagRequest { name: name.to_owned() }).await?;
    Ok(())
}

/// `busybox` is `docker.io/library/busybox:latest`: whatever was left out stands at the ends.
fn is_same(tag: &str, name: &str) -> bool {
    let named = if name.rsplit('/').next().is_some_and(|last| last.contains(':')) { "" } else { ":latest" };
    let full = format!("{name}{named}");
    tag == full || tag.strip_suffix(&full).is_some_and(|front| front.ends_with('/'))
}
