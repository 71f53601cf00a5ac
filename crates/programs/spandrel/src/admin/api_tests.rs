use spandrel_trust::Secret;

use super::*;

#[test]
fn secrets_are_in_no_log() {
    let text = "THE-SECRET".to_owned();
    let answer = JoinAnswer {
        cluster_name: "demo".to_owned(),
        authority_pem: String::new(),
        authority_key_pem: Some(text.clone()),
        certificate_pem: String::new(),
        state_is_own: true,
        state_identity: None,
        state_endpoints: Vec::new(),
    };
    let told = format!(
        "{answer:?} {:?} {:?} {:?}",
        JoinTokenAnswer { token: text.clone() },
        AccessCreated { token: text.clone() },
        Secret::random(),
    );
    assert!(!told.contains(&text), "{told}");
}

#[test]
fn a_new_size_is_asked_for_in_one_of_two_ways() {
    let parse = |text: &str| serde_json::from_str::<VolumeResize>(text);
    let whole = parse(r#"{"size_bytes":8192}"#).expect("it is well-formed");
    assert_eq!(whole, VolumeResize { size: NewSize::SizeBytes(8192), dry_run: false });
    let more = parse(r#"{"add_bytes":4096,"dry_run":true}"#).expect("it is well-formed");
    assert_eq!(more, VolumeResize { size: NewSize::AddBytes(4096), dry_run: true });
    assert_eq!(serde_json::to_string(&more).expect("plain data"), r#"{"add_bytes":4096,"dry_run":true}"#);
    assert!(parse(r#"{"dry_run":true}"#).is_err(), "a size is needed");
}
