use cri_proto::v1;
use serde_json::json;

use crate::{Client, Failure, human, output, table::Table};

/// Arguments of `pinion images`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print ids only
    #[arg(short, long)]
    quiet: bool,
    /// Print digests too
    #[arg(long)]
    digests: bool,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut images = client.images.list_images(v1::ListImagesRequest::default()).await?.into_inner().images;
    images.sort_by(|a, b| a.repo_tags.cmp(&b.repo_tags).then_with(|| a.id.cmp(&b.id)));
    if client.json {
        let object = |image: &v1::Image| {
            json!({"id": image.id, "tags": image.repo_tags, "digests": image.repo_digests, "size": image.size,
                "username": image.username, "uid": image.uid.map(|uid| uid.value), "pinned": image.pinned})
        };
        output::json(&images.iter().map(object).collect::<Vec<_>>())?;
    } else if args.quiet {
        output::lines(images.iter().map(|image| image.id.as_str()))?;
    } else {
        table(&images, args.digests).print()?;
    }
    Ok(0)
}

/// Returns a table with a row for each tag.
fn table(images: &[v1::Image], digests: bool) -> Table {
    let mut heads = vec!["IMAGE", "TAG", "ID", "SIZE"];
    if digests {
        heads.push("DIGEST");
    }
    let mut table = Table::new(&heads);
    for image in images {
        let none = vec!["<none>:<none>".to_owned()];
        let tags = if image.repo_tags.is_empty() { &none } else { &image.repo_tags };
        for name in tags {
            let (repository, tag) = name.rsplit_once(':').unwrap_or((name, ""));
            let mut row = vec![
                repository.to_owned(),
                tag.to_owned(),
                human::short(&image.id).to_owned(),
                human::size(image.size),
            ];
            if digests {
                let digest = image
                    .repo_digests
                    .iter()
                    .find(|digest| digest.starts_with(repository))
                    .or(image.repo_digests.first());
                row.push(
                    digest
                        .and_then(|digest| digest.split_once('@'))
                        .map_or(String::new(), |(_, digest)| digest.to_owned()),
                );
            }
            table.row(row);
        }
    }
    table
}
