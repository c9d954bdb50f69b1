//! rsigma over a file of events, as a peer of `python -m bench.rules`.
//!
//! rsigma-peer RULES.yml EVENTS.jsonl. It answers lines: `matches N` with the ids of the rules that each of the first N
//! events matches, `run` with the microseconds of CPU an event, decoding counted.

use std::io::{BufRead, Write};

use rsigma_eval::event::JsonEvent;
use rsigma_eval::{Engine, EvaluationResult};

fn cpu_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn matched(engine: &Engine, body: &[u8]) -> Vec<EvaluationResult> {
    let value: serde_json::Value = serde_json::from_slice(body).expect("an event is JSON");
    engine.evaluate(&JsonEvent::borrow(&value))
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&given[1]).expect("the rules can be read");
    let collection = rsigma_parser::parse_sigma_yaml(&text).expect("the rules are valid");
    assert!(collection.errors.is_empty(), "{:?}", collection.errors);
    let mut engine = Engine::new();
    if std::env::var("RSIGMA_AC").is_ok() {
        engine.set_cross_rule_ac(true);
    }
    if std::env::var("RSIGMA_BLOOM").is_ok() {
        engine.set_bloom_prefilter(true);
    }
    engine.add_collection(&collection).expect("the rules compile");
    let events = std::fs::read(&given[2]).expect("the events can be read");
    let events: Vec<&[u8]> = events.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    let mut out = std::io::stdout();
    writeln!(out, "{{\"rules\": {}}}", engine.rule_count()).unwrap();
    out.flush().unwrap();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        if let Some(count) = line.strip_prefix("matches ") {
            let count: usize = count.parse().unwrap();
            let found: Vec<Vec<String>> = events[..count]
                .iter()
                .map(|body| matched(&engine, body).into_iter().map(|hit| hit.header.rule_title).collect())
                .collect();
            writeln!(out, "{}", serde_json::json!({ "matches": found })).unwrap();
        } else {
            let begun = cpu_us();
            let hits: usize = events.iter().map(|body| matched(&engine, body).len()).sum();
            let each = (cpu_us() - begun) / events.len() as f64;
            writeln!(out, "{{\"us\": {each}, \"hits\": {hits}}}").unwrap();
        }
        out.flush().unwrap();
    }
}
