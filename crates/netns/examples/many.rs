//! Uses the same address and port in many namespaces of one process. Run it as root:
//! `cargo run -p pinion-netns --example many -- 64`

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use netns::{Namespace, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(8), |text| text.parse())?;
    let pool = Pool::new(8);
    let begin = Instant::now();
    let namespaces = (0..count).map(|_| pool.take()).collect::<Result<Vec<Namespace>, _>>()?;
    println!("{count} namespaces in {:?}", begin.elapsed());
    for (number, namespace) in namespaces.iter().enumerate() {
        // Only `socket()` has to be called in the namespace; the rest happens on this thread.
        let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:8080"))??;
        let mut client = namespace.enter(|| TcpStream::connect("127.0.0.1:8080"))??;
        let (mut server, _) = listener.accept()?;
        writeln!(server, "namespace {number} is {}", namespace.identity()?)?;
        drop(server);
        let mut line = String::new();
        client.read_to_string(&mut line)?;
        print!("{line}");
    }
    Ok(())
}
