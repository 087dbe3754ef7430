//! What goes wrong on the wire, and what becomes of it.

use std::time::Duration;

use offshoot_agent::TurnEndReason;
use offshoot_llm::{LlmSettings, Provider};
use offshoot_model_server::{Fault, Rule};
use serde_json::json;

use crate::support::{PROVIDERS, World, agent, model, often, once};

fn status(code: u16) -> Fault {
    Fault::Status {
        code,
        retry_after: None,
        body: None,
    }
}

/// Asks once under a fault and expects its error.
async fn fails(provider: Provider, settings: LlmSettings, fault: Fault, says: &str) -> World {
    let said = "some words before it goes wrong, enough for several pieces";
    let rule = Rule::user("go").text(said).fault(fault.clone());
    let world = World::new(provider, settings, [rule]);
    assert_eq!(
        world.ask("go").await,
        TurnEndReason::Error,
        "{provider} {fault:?}"
    );
    let error = world.error();
    assert!(error.contains(says), "{provider} {fault:?}: {error}");
    assert!(
        error.starts_with(&format!("{provider}/test-model: ")),
        "{error}"
    );
    world
}

#[tokio::test]
async fn a_cut_stream_is_an_error_and_what_had_arrived_is_kept() {
    for provider in PROVIDERS {
        // The frames before the text differ.
        let frames = match provider {
            Provider::Gemini | Provider::Ollama => 2,
            _ => 4,
        };
        let world = fails(
            provider,
            once(),
            Fault::Cut { frames },
            "the answer was cut",
        )
        .await;
        let said = world.of_type("message/assistant");
        assert_eq!(said.len(), 1, "{provider}");
        assert_eq!(said[0]["finish"], "error", "{provider}");
        assert!(
            said[0]["text"].as_str().unwrap().starts_with("some words"),
            "{provider}"
        );
        fails(provider, once(), Fault::NoEnd, "the answer was cut").await;
    }
}

#[tokio::test]
async fn a_broken_frame_is_an_error() {
    for provider in PROVIDERS {
        let frame = if matches!(provider, Provider::Gemini | Provider::Ollama) {
            1
        } else {
            5
        };
        fails(
            provider,
            often(),
            Fault::Malformed { frame },
            "the answer makes no sense",
        )
        .await;
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    for provider in PROVIDERS {
        let settings = LlmSettings {
            max_answer_bytes: 50_000,
            ..often()
        };
        let world = fails(provider, settings, Fault::Endless, "more than 50000 bytes").await;
        assert_eq!(world.server.requests().len(), 1, "{provider}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_stream_is_an_error() {
    for provider in PROVIDERS {
        let page = Fault::Body {
            text: "<html>hello</html>".to_owned(),
            content_type: "text/html".to_owned(),
        };
        let says = if provider == Provider::Ollama {
            "makes no sense"
        } else {
            "was cut"
        };
        fails(provider, once(), page, says).await;
    }
}

#[tokio::test]
async fn a_refused_request_is_not_sent_again() {
    for provider in PROVIDERS {
        for (code, says) in [
            (400, "the request was refused (400): scripted status 400"),
            (401, "the key was refused (401): scripted status 401"),
            (404, "the request was refused (404)"),
        ] {
            let world = fails(provider, often(), status(code), says).await;
            assert_eq!(world.server.requests().len(), 1, "{provider} {code}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere =
        offshoot_model_server::ModelServer::start(offshoot_model_server::Script::default());
    let location = elsewhere.url("/v1/chat/completions");
    fails(
        Provider::OpenAi,
        often(),
        Fault::Redirect { location },
        "a redirect, which is not followed",
    )
    .await;
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    for provider in PROVIDERS {
        let passing = [
            status(429),
            status(500),
            status(503),
            Fault::Drop,
            Fault::Cut { frames: 2 },
            Fault::ErrorEvent { frames: 1 },
        ];
        // The last of four retries succeeds.
        for pair in passing.chunks(4) {
            let failing = pair.iter().map(|fault| {
                Rule::user("go")
                    .text("lost words, lost words, lost words")
                    .times(1)
                    .fault(fault.clone())
            });
            let rules: Vec<Rule> = failing.chain([Rule::user("go").text("found")]).collect();
            let expected = rules.len();
            let world = World::new(provider, often(), rules);
            let ended = world.ask("go").await;
            assert_eq!(
                ended,
                TurnEndReason::Completed,
                "{provider}: {}",
                world.error()
            );
            assert_eq!(world.text(), "found", "{provider}");
            assert_eq!(world.server.requests().len(), expected, "{provider}");
            assert_eq!(world.of_type("message/assistant").len(), 1, "{provider}");
        }
    }
}

#[tokio::test]
async fn retries_are_bounded() {
    let world = fails(
        Provider::Anthropic,
        often(),
        status(529),
        "the provider failed: scripted status 529 (529)",
    )
    .await;
    assert_eq!(world.server.requests().len(), 5);
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    let limited = Fault::Status {
        code: 429,
        retry_after: Some("1".to_owned()),
        body: None,
    };
    let rules = [
        Rule::user("go").times(1).fault(limited),
        Rule::user("go").text("found"),
    ];
    let world = World::new(Provider::OpenAi, often(), rules);
    let before = std::time::Instant::now();
    assert_eq!(world.ask("go").await, TurnEndReason::Completed);
    assert!(before.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn nobody_there_is_told_soon() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}/v1");
    let agent = agent(model(Provider::Ollama, &url, often()));
    agent.followup(offshoot_agent::Message::user("x")).unwrap();
    agent.idle().await;
    let error = agent.with_projection(|p| p.facts().error.clone()).unwrap();
    assert!(
        error.starts_with("ollama/test-model: no connection: "),
        "{error}"
    );
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("http://"), "{error}");
}

#[tokio::test]
async fn slow_bytes_are_an_answer_all_the_same() {
    for provider in PROVIDERS {
        let mut slow = Rule::user("go")
            .text("slow 界 but sure")
            .fault(Fault::Slow {
                bytes: 7,
                delay_ms: 1,
            });
        slow.calls.clear();
        let world = World::new(provider, once(), [slow]);
        assert_eq!(
            world.ask("go").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        assert_eq!(world.text(), "slow 界 but sure", "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_nothing_is_given_up() {
    // The connection may not be what is waited for: on this clock every wait is over at once.
    let settings = LlmSettings {
        idle_timeout: Duration::from_secs(7),
        connect_timeout: Duration::from_secs(1_000),
        ..once()
    };
    let before = tokio::time::Instant::now();
    fails(
        Provider::OpenAi,
        settings,
        Fault::HangHeaders,
        "the provider was silent for 7 s",
    )
    .await;
    assert_eq!(before.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_for_all_attempts_together() {
    let settings = LlmSettings {
        idle_timeout: Duration::from_secs(7),
        connect_timeout: Duration::from_secs(1_000),
        deadline: Duration::from_secs(20),
        ..often()
    };
    let before = tokio::time::Instant::now();
    fails(
        Provider::Gemini,
        settings,
        Fault::HangHeaders,
        "no answer within 20 s",
    )
    .await;
    assert_eq!(before.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn silence_in_the_middle_is_an_error_too() {
    for fault in [Fault::HangBody { frames: 3 }, Fault::EndlessLine] {
        let settings = LlmSettings {
            idle_timeout: Duration::from_millis(300),
            ..once()
        };
        fails(
            Provider::OpenAi,
            settings,
            fault,
            "the provider was silent for 0.3 s",
        )
        .await;
    }
}

#[tokio::test]
async fn a_call_of_a_failed_answer_never_runs() {
    for provider in PROVIDERS {
        let cut = Rule::user("go")
            .call("echo", json!({"n": 1}))
            .fault(Fault::NoEnd);
        let world = World::new(provider, once(), [cut]);
        assert_eq!(world.ask("go").await, TurnEndReason::Error, "{provider}");
        assert!(world.of_type("tool/call").is_empty(), "{provider}");
    }
}
