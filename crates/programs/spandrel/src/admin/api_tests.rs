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
