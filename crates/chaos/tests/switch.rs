//! The switch, with real TCP through real namespaces. These tests need root, or whatever else may
//! make network namespaces, and say so loudly where they cannot be run.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ringfence_chaos::net::{Fabric, Rule};
use ringfence_client::{BootClock, Clock};

const PORT: u16 = 7;
/// Long enough that no healthy connection reaches it.
const LONG: Duration = Duration::from_secs(20);
/// Long enough to notice that nothing comes.
const SHORT: Duration = Duration::from_millis(400);

/// A network of so many ports, with a server behind each that sends back what it is sent.
fn network(ports: usize) -> Option<Fabric> {
    let fabric = match Fabric::build(ports, 42) {
        Ok(fabric) => fabric,
        Err(why) => {
            eprintln!("NOT SHOWN: the switch, which needs root or user namespaces: {why}");
            return None;
        }
    };
    for port in 0..ports {
        let address = SocketAddr::from((fabric.address(port), PORT));
        let listener = fabric.within(port, move || TcpListener::bind(address));
        let listener = listener.unwrap().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || echo(stream.unwrap()));
            }
        });
    }
    Some(fabric)
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

/// A connection from one port to the server behind another.
fn connect(fabric: &Fabric, from: usize, to: Ipv4Addr, limit: Duration) -> Option<TcpStream> {
    let connect = move || TcpStream::connect_timeout(&SocketAddr::from((to, PORT)), limit);
    let stream = fabric.within(from, connect).unwrap().ok()?;
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    Some(stream)
}

fn connected(fabric: &Fabric, from: usize, to: usize) -> TcpStream {
    connect(fabric, from, fabric.address(to), LONG).unwrap()
}

/// How long a message takes there and back.
fn round_trip(stream: &mut TcpStream) -> Duration {
    let begin = BootClock.now();
    stream.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    BootClock.now().saturating_since(begin)
}

#[test]
fn megabytes_pass_unharmed_between_all_ports() {
    let Some(fabric) = network(3) else { return };
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let mut stream = connected(&fabric, from, to);
        let sent: Vec<u8> = (0..2_000_000_u32).map(|byte| (byte % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let writing = sent.clone();
        let thread = std::thread::spawn(move || writer.write_all(&writing).unwrap());
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).unwrap();
        thread.join().unwrap();
        assert!(got == sent, "{from} to {to}");
    }
}

#[test]
fn a_delay_is_added_to_each_direction_that_has_one() {
    let Some(fabric) = network(2) else { return };
    let mut stream = connected(&fabric, 0, 1);
    let free = (0..5).map(|_| round_trip(&mut stream)).min().unwrap();
    let delay = Duration::from_millis(80);
    let rule = Rule {
        delay,
        ..Rule::default()
    };

    let imposed = fabric.impose([((0, 1), rule)]);
    let one_way = (0..3).map(|_| round_trip(&mut stream)).min().unwrap();
    assert!(one_way >= delay, "{one_way:?} {free:?}");
    assert!(fabric.lift(imposed).delayed >= 3);

    let after = (0..5).map(|_| round_trip(&mut stream)).min().unwrap();
    assert!(after < delay, "{after:?}");
}

#[test]
fn one_direction_can_be_cut_without_the_other() {
    let Some(fabric) = network(2) else { return };
    let mut stream = connected(&fabric, 0, 1);
    round_trip(&mut stream);

    // The question arrives, the answer does not.
    let imposed = fabric.impose([((1, 0), Rule::CUT)]);
    stream.set_read_timeout(Some(SHORT)).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap_err();
    let before_lifting = fabric.counters(imposed);
    assert!(before_lifting.dropped > 0, "{before_lifting:?}");
    fabric.lift(imposed);

    // Its repetition does.
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
}

#[test]
fn a_cut_port_is_unreachable_and_the_others_are_not() {
    let Some(fabric) = network(3) else { return };
    let links = [(0, 1), (1, 0), (0, 2), (2, 0)];
    let imposed = fabric.impose(links.map(|link| (link, Rule::CUT)));

    assert!(connect(&fabric, 1, fabric.address(0), SHORT).is_none());
    round_trip(&mut connected(&fabric, 1, 2));

    assert!(fabric.lift(imposed).dropped > 0);
    round_trip(&mut connected(&fabric, 1, 0));
}

#[test]
fn lost_doubled_and_overtaking_packets_harm_no_stream() {
    let Some(fabric) = network(2) else { return };
    let rule = Rule {
        loss: 0.05,
        duplicate: 0.1,
        reorder: 0.1,
        delay: Duration::from_millis(2),
        ..Rule::default()
    };
    let imposed = fabric.impose([((0, 1), rule), ((1, 0), rule)]);
    let mut stream = connected(&fabric, 0, 1);
    for _ in 0..60 {
        round_trip(&mut stream);
    }

    let counters = fabric.lift(imposed);
    let all = [counters.dropped, counters.duplicated, counters.reordered];
    assert!(all.iter().all(|count| *count > 0), "{counters:?}");
}

#[test]
fn nothing_is_left_when_a_network_is_dropped() {
    let Some(fabric) = network(2) else { return };
    let own = |thread: &str| std::fs::read_link(format!("/proc/{thread}/ns/net")).unwrap();
    let inside = fabric.within(0, move || own("thread-self")).unwrap();
    assert_ne!(inside, own("self"));
    drop(fabric);

    // The devices of this process's own namespace are what they were: the ports never were there.
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("port0"), "{devices}");
}
