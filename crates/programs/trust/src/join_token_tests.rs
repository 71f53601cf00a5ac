use super::*;

fn token(addresses: &[&str]) -> JoinToken {
    JoinToken {
        cluster: ClusterId::from_random(1, 2),
        authority: Fingerprint([7; 32]),
        secret: Secret::random(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

#[test]
fn a_token_is_one_word_and_comes_back_the_same() {
    for addresses in [&["192.0.2.7:7441"][..], &["127.0.0.1:7441", "[2001:db8::7]:7441"]] {
        let token = token(addresses);
        let text = token.to_string();
        assert!(!text.contains(char::is_whitespace), "{text}");
        assert_eq!(text.parse::<JoinToken>().unwrap(), token);
        assert_eq!(format!("  {text}\n").parse::<JoinToken>().unwrap(), token);
    }
}

#[test]
fn what_is_cut_off_or_damaged_is_refused_with_the_reason() {
    let text = token(&["192.0.2.7:7441"]).to_string();
    let why = |text: &str| {
        let error = text.parse::<JoinToken>().unwrap_err();
        assert_eq!(error.code, "TOKEN_INVALID");
        error.why
    };
    assert!(why("").contains("begin"));
    assert!(why("sa1.xyz").contains("begin"));
    assert!(why(&text[..40]).contains("middle"));
    assert!(why(&text.replacen('.', "._", 1)).contains("middle"));
    assert!(why(&text[..text.len() - 6]).contains("addresses"));
    assert!(why(&text.replace("192.0.2.7", "example.org")).contains("addresses"));
}

#[test]
fn secrets_are_in_no_log() {
    let token = token(&["192.0.2.7:7441"]);
    let secret = crate::secret::encode(&token.secret.0);
    assert!(!format!("{token:?}").contains(&secret));
    assert_ne!(token.secret.digest(), Secret::random().digest());
    assert_eq!(token.secret.digest(), token.secret.clone().digest());
}
