use cri_proto::v1;

use crate::{Client, Failure, lookup, output::Each};

/// Arguments of `pinion rmi`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Even if containers use it
    #[arg(short, long)]
    force: bool,
    /// Names or ids; all tags of an image go with it
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
    if !force {
        let users = lookup::containers(client).await?.into_iter().find(|container| container.image_id == image.id);
        if let Some(container) = users {
            let user = lookup::name_of(&container);
            return Err(Failure::new(format!(
                "image {name:?} is used by container {user:?}; remove that first or use: pinion rmi -f {name}"
            )));
        }
    }
    client.images.remove_image(v1::RemoveImageRequest { image: spec }).await?;
    Ok(())
}
