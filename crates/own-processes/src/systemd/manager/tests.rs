use test_support::run;
use tokio::net::UnixListener;

use super::*;
use crate::systemd::PropertyValue;

/// Speaks as systemd does on its own socket, and answers each call with one of the `answers`. Returns the last call.
async fn fake(listener: UnixListener, answers: &[Vec<u8>]) -> Vec<u8> {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = vec![0; 200];
    let length = stream.read(&mut received).await.unwrap();
    let user: String = geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
    assert_eq!(String::from_utf8_lossy(&received[..length]), format!("\0AUTH EXTERNAL {user}\r\n"));
    stream.write_all(b"OK 0123456789abcdef\r\n").await.unwrap();
    let mut begin = [0; 7];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"BEGIN\r\n");
    let mut call = Vec::new();
    for answer in answers {
        let mut start = [0; START];
        stream.read_exact(&mut start).await.unwrap();
        call = vec![0; message::lengths(&start).unwrap().1];
        stream.read_exact(&mut call).await.unwrap();
        stream.write_all(answer).await.unwrap();
    }
    call
}

/// A signal, then the answer to the call that `fields` name, as systemd 252 sent them.
fn answer(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let signal = [108, 4, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 8, 1, b'g', 0, 1, b's', 0, 0];
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let mut bytes = signal.to_vec();
    bytes.extend([108, kind, 1, 1]);
    bytes.extend([length(body), 9_u32.to_le_bytes(), length(fields)].concat());
    bytes.extend(fields);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(body);
    bytes
}

fn with_fake<T>(answers: &[Vec<u8>], work: impl AsyncFnOnce(&mut Manager) -> T) -> (T, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("private");
    run(async {
        let listener = UnixListener::bind(&socket).unwrap();
        let work = async { work(&mut Manager::connect_to(&socket).await.unwrap()).await };
        tokio::join!(work, fake(listener, answers))
    })
}

#[test]
fn a_scope_is_asked_for_and_the_answer_is_awaited() {
    // The number of the call that it answers: 1.
    let done = answer(2, &[5, 1, b'u', 0, 1, 0, 0, 0], &[]);
    let properties = [Property::new("Slice", PropertyValue::Text("a.slice".into()))];
    let (started, call) =
        with_fake(&[done], async |manager| manager.start_scope("x.scope", &properties).await);
    started.unwrap();
    let text = String::from_utf8_lossy(&call);
    for word in ["StartTransientUnit", "ssa(sv)a(sa(sv))", "x.scope", "replace", "Slice", "a.slice"] {
        assert!(text.contains(word), "{word}: {text:?}");
    }
}

#[test]
fn a_refusal_has_systemds_words() {
    let mut fields = vec![5, 1, b'u', 0, 1, 0, 0, 0, 4, 1, b's', 0, 38, 0, 0, 0];
    fields.extend(b"org.freedesktop.systemd1.NoSuchUnitXYZ\0\0");
    fields.extend([8, 1, b'g', 0, 1, b's', 0]);
    let refused = answer(3, &fields, b"\x03\0\0\0no!\0");
    let (stopped, _) = with_fake(&[refused], async |manager| manager.stop_unit("x.scope").await);
    let error = stopped.unwrap_err();
    assert!(!error.is_no_such_unit());
    let words = "systemd refuses StopUnit: no! (org.freedesktop.systemd1.NoSuchUnitXYZ)";
    assert_eq!(error.to_string(), words);
}

/// systemd changes none of the properties then.
#[test]
fn what_an_old_systemd_refuses_is_left_out() {
    let unknown = |call| {
        let mut fields = vec![5, 1, b'u', 0, call, 0, 0, 0, 4, 1, b's', 0, 43, 0, 0, 0];
        fields.extend(b"org.freedesktop.DBus.Error.PropertyReadOnly\0");
        answer(3, &fields, &[])
    };
    let done = |call| answer(2, &[5, 1, b'u', 0, call, 0, 0, 0], &[]);
    let properties = [
        Property::new("CPUQuotaPeriodUSec", PropertyValue::U64(5)),
        Property::new("TasksMax", PropertyValue::U64(5)),
    ];
    for (answers, left) in
        [(vec![done(1)], &["CPUQuotaPeriodUSec", "TasksMax"][..]), (vec![unknown(1), done(2)], &["TasksMax"])]
    {
        let set = async |manager: &mut Manager| manager.set_properties("x.scope", &properties).await;
        let (set, call) = with_fake(&answers, set);
        set.unwrap();
        let text = String::from_utf8_lossy(&call);
        let found: Vec<_> =
            properties.iter().map(|property| &*property.name).filter(|name| text.contains(name)).collect();
        assert_eq!(found, left);
    }
    // Another one is the caller's error.
    let set = async |manager: &mut Manager| manager.set_properties("x.scope", &properties[1..]).await;
    let (set, _) = with_fake(&[unknown(1)], set);
    assert!(set.unwrap_err().is_of_property());
}

#[test]
fn systemd_that_is_not_there_is_named_by_its_socket() {
    let error = run(async { Manager::connect_to(Path::new("/no/private")).await.unwrap_err() });
    assert!(error.to_string().starts_with("/no/private: "), "{error}");
}
