//! A registry whose responses a test decides: slow, stalled, with redirects or refusals.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use image::Digest;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::TestImage;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The path without its query.
    pub path: String,
    pub query: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }
}

/// How the body is sent.
#[derive(Clone)]
pub enum Pace {
    Whole,
    /// Sends one byte per duration.
    Trickle(Duration),
    /// Sends this many bytes, then nothing.
    Stall(usize),
    /// Sends this many bytes of the requested range, then closes the connection.
    Break(usize),
    /// Sends nothing before the channel has the value `true`.
    Until(watch::Receiver<bool>),
}

#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub pace: Pace,
}

impl Answer {
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), pace: Pace::Whole }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }
}

pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answer, seen) = (Arc::new(answer), Arc::<Mutex<Vec<Request>>>::default());
        let all = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (answer, all) = (answer.clone(), all.clone());
                tokio::spawn(async move {
                    let _ = serve(client, &*answer, &all).await;
                });
            }
        });
        Self { address, seen, task }
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub fn count(&self, matches: impl Fn(&Request) -> bool) -> usize {
        self.seen.lock().unwrap().iter().filter(|request| matches(request)).count()
    }

    /// Waits for a request, with a generous deadline.
    pub async fn sees(&self, matches: impl Fn(&Request) -> bool) {
        for _ in 0..3000 {
            if self.count(&matches) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not within 30 s: {:?}", self.seen());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    client: TcpStream,
    answer: &(dyn Fn(&Request) -> Answer + Send + Sync),
    seen: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    client.read_line(&mut line).await?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if client.read_line(&mut line).await? < 3 {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let request = Request { method, path, query, headers };
    seen.lock().unwrap().push(request.clone());
    let answer = answer(&request);
    send(client.into_inner(), &request, answer).await
}

async fn send(mut client: TcpStream, request: &Request, answer: Answer) -> std::io::Result<()> {
    let from =
        request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let from: usize = from.filter(|from| *from <= answer.body.len()).unwrap_or(0);
    let (status, body) = if from > 0 { (206, &answer.body[from..]) } else { (answer.status, &answer.body[..]) };
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    client.write_all((head + "\r\n").as_bytes()).await?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match answer.pace {
        Pace::Whole => client.write_all(body).await,
        Pace::Trickle(pause) => {
            for byte in body {
                client.write_all(&[*byte]).await?;
                tokio::time::sleep(pause).await;
            }
            Ok(())
        }
        Pace::Stall(bytes) => {
            client.write_all(&body[..bytes.min(body.len())]).await?;
            std::future::pending().await
        }
        Pace::Break(bytes) => client.write_all(&body[..bytes.min(body.len())]).await,
        Pace::Until(mut open) => {
            let _ = open.wait_for(|open| *open).await;
            client.write_all(body).await
        }
    }
}

/// Returns the responses of a registry for an image, by the end of the path: `manifests/1`, `blobs/sha256:…`.
pub fn content(image: &TestImage, tag: &str) -> HashMap<String, Answer> {
    let manifest = serde_json::to_vec(&image.manifest()).unwrap();
    let digest = Digest::of(&manifest);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = Answer { body: manifest, ..Answer::new(200) }.header("content-type", kind);
    let manifest = manifest.header("docker-content-digest", digest.to_string());
    let blob =
        |bytes: &[u8]| (format!("blobs/{}", Digest::of(bytes)), Answer { body: bytes.to_vec(), ..Answer::new(200) });
    let mut all: HashMap<_, _> = image.layers.iter().map(|layer| blob(&layer.blob)).collect();
    all.extend([blob(&image.config())]);
    all.extend([(format!("manifests/{tag}"), manifest.clone()), (format!("manifests/{digest}"), manifest)]);
    all
}

/// Returns the response in `content`, whatever the repository.
pub fn from(content: &HashMap<String, Answer>, request: &Request) -> Answer {
    let mut parts = request.path.rsplit('/');
    let (last, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    content.get(&format!("{kind}/{last}")).cloned().unwrap_or(Answer::new(404))
}
