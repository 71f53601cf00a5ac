use super::*;

#[test]
fn uris_name_server_and_export() {
    let tcp: Target = "nbd://127.0.0.1:4000/vm-01".parse().unwrap();
    assert_eq!(tcp, Target::new("vm-01", Address::Tcp(([127, 0, 0, 1], 4000).into()), "vm-01"));
    let unix: Target = "nbd+unix:///vm-02?socket=/run/a%20b".parse().unwrap();
    assert_eq!(unix, Target::new("vm-02", Address::Unix("/run/a b".to_owned()), "vm-02"));
    let short: Target = "nbd://[::1]".parse().unwrap();
    assert_eq!(short, Target::new("[::1]:10809", Address::Tcp("[::1]:10809".parse().unwrap()), ""));
    for target in [tcp, unix] {
        assert_eq!(target.to_string().parse(), Ok(target));
    }
}

#[test]
fn what_is_no_uri_is_refused_with_the_form() {
    for uri in [
        "",
        "vm-01",
        "http://a/b",
        "nbd+unix:///a",
        "nbd://127.0.0.1:99999/a",
        "nbd+unix:///%zz?socket=a",
        "nbd+unix:///%4",
    ] {
        let error = uri.parse::<Target>().unwrap_err();
        assert!(error.contains("nbd://host:port/export"), "{error}");
    }
}
