//! The health service of gRPC: each status, and servers that answer something else, nothing, or without an end.

use super::*;

async fn grpc(process: &Process, port: u16, service: &str, timeout: Duration) -> ProbeResult {
    ask(process, Question::Grpc { port, service: service.to_owned() }, timeout).await
}

/// The settings of a server, and a message that ends the stream.
fn answer(message: &[u8]) -> Vec<u8> {
    let length = 5 + message.len() as u8;
    [
        &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, length, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, message.len() as u8][..],
        message,
    ]
    .concat()
}

/// U2: only SERVING opens the gate, and the failure has the server's own word.
#[test]
fn u2_a_grpc_probe_opens_by_the_health_services_status() {
    let refused = b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x88".to_vec();
    let cases = [
        (answer(&[8, 1]), "succeeded"),
        (answer(&[8, 2]), "grpc:PORT/shop.v1.Cart: NOT_SERVING"),
        (answer(&[]), "grpc:PORT/shop.v1.Cart: UNKNOWN"),
        (answer(&[8, 3]), "grpc:PORT/shop.v1.Cart: SERVICE_UNKNOWN"),
        (refused, "grpc:PORT/shop.v1.Cart: no service of that name, or no grpc.health.v1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "grpc:PORT/shop.v1.Cart: no answer of gRPC"),
        (Vec::new(), "grpc:PORT/shop.v1.Cart: the connection was closed before an answer"),
    ];
    with_listener(async |process, listener| {
        let port = listener.local_addr().unwrap().port();
        let answers = cases.clone();
        let server = std::thread::spawn(move || {
            for (answer, _) in answers {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let length = client.read(&mut request).unwrap();
                let asked = request[..length].ends_with(b"\x0a\x0cshop.v1.Cart");
                assert!(asked, "{}", request[..length].escape_ascii());
                client.write_all(&answer).unwrap();
            }
        });
        for (_, expected) in &cases {
            let result = within(grpc(process, port, "shop.v1.Cart", TIMEOUT)).await.to_string();
            assert_eq!(result, expected.replace("PORT", &port.to_string()));
        }
        server.join().unwrap();
        let result = within(grpc(process, port, "", TIMEOUT)).await.to_string();
        assert_eq!(result, format!("grpc:{port}: refused"));
    });
}

/// DESIGN §6: a server that sends without an end, or does not answer, takes the probe no further than its bounds.
#[test]
fn u2_a_grpc_probe_ends_with_a_hostile_server() {
    with_listener(async |process, listener| {
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut endless, _) = listener.accept().unwrap();
            let pings = b"\0\0\x08\x06\x01\0\0\0\0abcdefgh".repeat(1000);
            let mut sent = 0;
            endless.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap();
            while endless.write_all(&pings).is_ok() {
                sent += pings.len();
            }
            let (silent, _) = listener.accept().unwrap();
            (sent, silent)
        });
        let endless = within(grpc(process, port, "", TIMEOUT)).await.to_string();
        assert_eq!(endless, format!("grpc:{port}: the answer is too long"));
        let silent = within(grpc(process, port, "", Duration::from_millis(300))).await.to_string();
        assert_eq!(silent, format!("grpc:{port}: timed out after 300ms"));
        assert!(server.join().unwrap().0 < 64 << 20);
    });
}
