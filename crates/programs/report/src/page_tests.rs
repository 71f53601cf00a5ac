use super::*;
use crate::testing::run;

fn page(runs: &[MeasuredRun]) -> String {
    let options = ReportOptions {
        made: "2026-11-29 10:00:00 UTC".to_owned(),
        made_by: "spandrel 0.1.0".to_owned(),
        ..ReportOptions::default()
    };
    render(runs, &options)
}

/// What stands in the page as data.
fn data_of(page: &str, id: &str) -> serde_json::Value {
    let mark = format!("<script type=\"application/json\" id=\"{id}\">");
    let begin = page.find(&mark).expect(id) + mark.len();
    let end = begin + page[begin..].find("</script>").expect("it ends");
    serde_json::from_str(&page[begin..end]).expect("it is JSON")
}

#[test]
fn the_page_holds_all_that_was_measured() {
    let runs = [run("one", 1000.0), run("other", 2000.0)];
    let page = page(&runs);
    let held: Vec<MeasuredRun> = serde_json::from_value(data_of(&page, "runs")).expect("they are runs");
    assert_eq!(held, runs);
    assert!(page.contains("data-value=\"1800\"") && page.contains(">1,800<"), "the table has it");
    assert!(data_of(&page, "figure-0-0-option")["series"].is_array());
}

#[test]
fn the_page_needs_no_network_and_is_not_led_astray_by_names() {
    let evil = "</script><script>alert(1)</script><!-- \"quoted\" & <b>";
    let mut one = run(evil, 1000.0);
    one.remarks.push(evil.to_owned());
    let page = page(&[one]);
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    assert!(!page.contains("<script>alert(1)"), "it is text");
    let held: Vec<MeasuredRun> = serde_json::from_value(data_of(&page, "runs")).expect("they are runs");
    assert_eq!(held[0].name, evil);
    let own = page.replace(ECHARTS, "");
    for mark in ["src=", "href=", "@import", "url("] {
        assert!(!own.contains(mark), "{mark}");
    }
}
