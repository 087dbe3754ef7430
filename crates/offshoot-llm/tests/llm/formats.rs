//! What goes out and what comes back, in each format.

use offshoot_agent::TurnEndReason;
use offshoot_llm::{LlmSettings, Provider};
use offshoot_model_server::{Finish, Request, Rule};
use serde_json::{Value, json};

use crate::support::{PROVIDERS, World, once};

fn key_of(provider: Provider, request: &Request) -> Option<String> {
    let header = match provider {
        Provider::Anthropic => "x-api-key",
        Provider::Gemini => "x-goog-api-key",
        _ => "authorization",
    };
    request.header(header).map(str::to_owned)
}

#[tokio::test]
async fn a_text_with_its_usage() {
    for provider in PROVIDERS {
        let long = "The quick brown fox jumps over the lazy dog, 界.";
        let world = World::new(
            provider,
            once(),
            [Rule::user("hello").text(long).usage(123, 45)],
        );
        assert_eq!(
            world.ask("hello").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        assert_eq!(world.text(), long, "{provider}");
        let said = world.of_type("message/assistant");
        assert_eq!(
            said[0]["usage"],
            json!({"input": 123, "output": 45}),
            "{provider}"
        );
        assert_eq!(said[0]["finish"], "stop", "{provider}");
        let request = &world.server.requests()[0];
        let conversation = request.conversation.clone().unwrap();
        assert!(conversation.stream, "{provider}");
        assert_eq!(conversation.system, "You are a test.", "{provider}");
        assert!(request.body.to_string().contains("\"echo\""), "{provider}");
        let key = key_of(provider, request);
        assert_eq!(
            key.is_some(),
            provider.requires_key(),
            "{provider}: {key:?}"
        );
        assert!(
            request
                .header("user-agent")
                .unwrap()
                .starts_with("offshoot/"),
            "{provider}"
        );
        let named =
            request.body["model"] == "test-model" || request.path.contains("models/test-model:");
        assert!(named, "{provider}: {}", request.path);
    }
}

#[tokio::test]
async fn several_calls_at_once_and_their_results() {
    for provider in PROVIDERS {
        let mut calls = Rule::user("add")
            .results(0)
            .call("echo", json!({"n": 1}))
            .call("echo", json!({"n": 22}));
        calls.piece = Some(3);
        calls.interleave = true;
        let world = World::new(
            provider,
            once(),
            [calls, Rule::user("add").results(2).text("got ${result}")],
        );
        assert_eq!(
            world.ask("add them").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        assert_eq!(world.text(), "got echo 22", "{provider}");
        let seen: Vec<Value> = world
            .of_type("tool/call")
            .iter()
            .map(|call| call["args"].clone())
            .collect();
        assert_eq!(seen, [json!({"n": 1}), json!({"n": 22})], "{provider}");
        let ids: Vec<Value> = world
            .of_type("tool/call")
            .iter()
            .map(|call| call["call_id"].clone())
            .collect();
        assert_ne!(ids[0], ids[1], "{provider}");
        let conversation = world.server.requests()[1].conversation.clone().unwrap();
        assert_eq!(conversation.results, ["echo 1", "echo 22"], "{provider}");
        assert_eq!(
            world.of_type("message/assistant")[0]["finish"],
            "tool_calls",
            "{provider}"
        );
    }
}

#[tokio::test]
async fn a_turn_after_a_turn_has_the_whole_past() {
    for provider in PROVIDERS {
        let world = World::new(
            provider,
            once(),
            [
                Rule::user("first")
                    .results(0)
                    .text("I look.")
                    .call("echo", json!({"n": 3})),
                Rule::user("first").results(1).text("It was ${result}."),
                Rule::user("second").results(0).text("As I said."),
            ],
        );
        assert_eq!(
            world.ask("the first").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        assert_eq!(
            world.ask("the second").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        let body = world.server.requests()[2].body.to_string();
        for part in [
            "the first",
            "I look.",
            "echo 3",
            "It was echo 3.",
            "the second",
        ] {
            assert!(body.contains(part), "{provider}: {part}: {body}");
        }
    }
}

#[tokio::test]
async fn nonsense_is_told_to_the_model() {
    for provider in PROVIDERS {
        let mut cut = Rule::user("try").results(2);
        cut.calls = vec![offshoot_model_server::Call {
            name: "echo".to_owned(),
            raw_args: Some("{\"n\": 1".to_owned()),
            ..Default::default()
        }];
        let world = World::new(
            provider,
            once(),
            [
                Rule::user("try")
                    .results(0)
                    .call("no_such_tool", json!({"x": 1})),
                Rule::user("try")
                    .results(1)
                    .call("echo", json!({"n": "many"})),
                cut,
                Rule::user("try").results(3).call("echo", json!({"n": 4})),
                Rule::user("try").results(4).text("at last: ${result}"),
            ],
        );
        assert_eq!(
            world.ask("try").await,
            TurnEndReason::Completed,
            "{provider}: {}",
            world.error()
        );
        assert_eq!(world.text(), "at last: echo 4", "{provider}");
        let codes: Vec<Value> = world
            .of_type("tool/result")
            .iter()
            .map(|result| result["code"].clone())
            .collect();
        assert_eq!(
            codes,
            [
                json!("UNKNOWN_TOOL"),
                json!("INVALID_ARGUMENTS"),
                json!("INVALID_ARGUMENTS"),
                Value::Null
            ],
            "{provider}"
        );
        let told = world.server.requests()[1]
            .conversation
            .clone()
            .unwrap()
            .results;
        assert!(
            told[0].contains("unknown tool `no_such_tool`; the tools are: echo"),
            "{provider}: {told:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_declined_says_so() {
    for provider in PROVIDERS {
        let world = World::new(
            provider,
            once(),
            [
                Rule::user("long")
                    .text("and so on")
                    .call("echo", json!({"n": 1}))
                    .finish(Finish::MaxTokens),
                Rule::user("bad")
                    .text("I will not.")
                    .finish(Finish::Refusal),
            ],
        );
        assert_eq!(
            world.ask("long").await,
            TurnEndReason::MaxTokens,
            "{provider}: {}",
            world.error()
        );
        assert!(world.of_type("tool/call").is_empty(), "{provider}");
        if provider != Provider::Ollama {
            assert_eq!(
                world.ask("bad").await,
                TurnEndReason::Refusal,
                "{provider}: {}",
                world.error()
            );
        }
    }
}

#[tokio::test]
async fn the_bound_of_tokens_is_sent() {
    for provider in PROVIDERS {
        let settings = LlmSettings {
            max_output_tokens: Some(777),
            ..once()
        };
        let world = World::new(provider, settings, [Rule::any().text("x")]);
        world.ask("x").await;
        let body = world.server.requests()[0].body.to_string();
        assert!(body.contains(":777"), "{provider}: {body}");
    }
}

#[tokio::test]
async fn a_compatible_endpoint_with_a_key_gets_it() {
    use offshoot_llm::{ApiKey, LlmModel};
    use offshoot_model_server::{ModelServer, Script};

    let server = ModelServer::start(Script::new([Rule::any().text("x")]));
    let route = crate::support::route(Provider::OpenAiCompatible, &server.url("/api/v3?version=7"));
    let key = ApiKey::new("abc").unwrap();
    let agent = crate::support::agent(LlmModel::new(route, Some(key), once()).unwrap());
    agent.followup(offshoot_agent::Message::user("x")).unwrap();
    agent.idle().await;
    let request = &server.requests()[0];
    assert_eq!(request.path, "/api/v3/chat/completions?version=7");
    assert_eq!(request.header("authorization"), Some("Bearer abc"));
}

#[tokio::test]
async fn reasoning_and_signatures_go_back_where_they_are_wanted() {
    let world = World::new(
        Provider::Gemini,
        once(),
        [
            Rule::user("go")
                .results(0)
                .call("echo", json!({"n": 1}))
                .signature("SIG-1"),
            Rule::user("go").results(1).text("done"),
        ],
    );
    assert_eq!(
        world.ask("go").await,
        TurnEndReason::Completed,
        "{}",
        world.error()
    );
    let body = world.server.requests()[1].body.to_string();
    assert!(body.contains("\"thoughtSignature\":\"SIG-1\""), "{body}");
    let world = World::new(
        Provider::DeepSeek,
        once(),
        [
            Rule::user("go")
                .results(0)
                .reasoning("because")
                .call("echo", json!({"n": 1})),
            Rule::user("go").results(1).text("done"),
        ],
    );
    assert_eq!(
        world.ask("go").await,
        TurnEndReason::Completed,
        "{}",
        world.error()
    );
    let body = world.server.requests()[1].body.to_string();
    assert!(body.contains("\"reasoning_content\":\"because\""), "{body}");
    assert!(!crate::support::mentions(&world.events(), "because"));
}
