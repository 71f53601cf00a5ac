use super::*;

#[test]
fn a_token_is_one_word_and_comes_back_the_same() {
    let token = AccessToken { authority: Fingerprint([9; 32]), secret: Secret::random() };
    let text = token.to_string();
    assert_eq!(text.len(), 4 + 64);
    assert_eq!(text.parse::<AccessToken>().unwrap(), token);
    for damaged in ["", "sa1.", &text[..60], &text.replace("sa1", "sj1"), &format!("{text}x")] {
        assert_eq!(damaged.parse::<AccessToken>().unwrap_err().code, "TOKEN_INVALID", "{damaged}");
    }
}
