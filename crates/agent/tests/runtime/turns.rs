//! What a turn does, told by its checkpoint, its trace and what the model was asked.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tollgate_agent::runtime::{
    AgentEvent, Budget, BudgetDefaults, OffWord, PolicyDefault, SessionSettings, Stop, TurnRequest,
    kinds, replay_turn,
};
use tollgate_consent::Holder;
use tollgate_contract::{Capability, ErrorCode};
use tollgate_protocol::Role;

use crate::stage::{Play, Setting, call, calls, name, notes, says};

fn result(message: &Value) -> Value {
    let text = message["content"].as_str().unwrap();
    serde_json::from_str(text.strip_prefix("TOOL RESULT\n").unwrap_or(text)).unwrap()
}

#[tokio::test]
async fn a_turn_answers_and_is_kept() {
    let play = Play::new(says(&["Hello there."])).await;
    let report = play.say("Hi").await;
    assert!(report.ok, "{report:?}");
    assert_eq!((report.turn, report.text.as_str()), (1, "Hello there."));
    let checkpoint = play.stage.checkpoint();
    assert_eq!(checkpoint.revision, 1);
    let said: Vec<(Role, &str)> =
        checkpoint.recent_messages.iter().map(|m| (m.role, m.content.as_str())).collect();
    assert_eq!(said, [(Role::User, "Hi"), (Role::Assistant, "Hello there.")]);
    assert_eq!(checkpoint.trace_tail, ["000001.jsonl"]);
}

#[tokio::test]
async fn the_next_turn_knows_what_was_said() {
    let play = Play::new(says(&["One.", "Two."])).await;
    play.say("first").await;
    play.say("second").await;
    let asked = play.asked().pop().unwrap();
    let said: Vec<&str> = asked[1..].iter().map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["first", "One.", "second"]);
}

#[tokio::test]
async fn tools_run_in_order_and_their_results_go_back_as_tool_messages() {
    let block = calls(&json!([
        {"id": "a", "tool": "text.give", "args": {"text": "x"}},
        {"id": "b", "tool": "text.fail", "args": {"text": "broken"}},
        {"id": "c", "tool": "no.such", "args": {}},
        {"id": "d", "tool": "text.give", "args": {"text": 7}},
        {"id": "d", "tool": "text.give", "args": {"text": "again"}},
        {"id": "e", "tool": "note.append", "args": {"text": "mark"}},
    ]));
    let play = Play::new(says(&[&format!("Let me see.\n{block}"), "Done."])).await;
    let report = play.say("go").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(report.text, "Let me see.\n\nDone.");
    assert_eq!(report.totals.tool_calls, 5);
    assert_eq!(play.stage.marks(), ["mark"]);
    let asked = play.asked().pop().unwrap();
    let results: Vec<Value> = asked[asked.len() - 6..].iter().map(result).collect();
    assert_eq!(
        results[0],
        json!({"id": "a", "tool": "text.give", "ok": true, "output": {"text": "x"}, "error": null})
    );
    let errors: Vec<&str> =
        results[1..5].iter().map(|one| one["error"].as_str().unwrap()).collect();
    assert!(errors[0].starts_with("TOOL_FAILED: "), "{errors:?}");
    assert!(errors[1].starts_with("UNKNOWN_TOOL: "), "{errors:?}");
    assert!(errors[2].starts_with("INVALID_INPUT: "), "{errors:?}");
    assert_eq!(errors[3], "the id `d` was used before in this answer");
    assert!(results[1..5].iter().all(|one| one["ok"] == false && one["output"].is_null()));
    assert_eq!(results[5]["ok"], true);
    // The history keeps them under the role of the protocol.
    let kept = play.stage.checkpoint().recent_messages;
    assert_eq!(kept.iter().filter(|message| message.role == Role::Tool).count(), 6);
}

#[tokio::test]
async fn the_trace_has_every_kind_and_names_the_calls_of_the_ledger() {
    let first = format!(
        "{}{}",
        call("text.give", "x"),
        notes(&json!({"set_goals": ["g"], "actions": ["condense_now", "dance"]}))
    );
    let play = Play::new(says(&[&first, "Done."])).await;
    play.say("go").await;
    let events = play.stage.events();
    for kind in [
        kinds::LLM_REQ,
        kinds::LLM_STREAM,
        kinds::LLM_DONE,
        kinds::NOTES_PATCH,
        kinds::ACTIONS,
        kinds::RETRIEVAL,
        kinds::TOOL_PLAN,
        kinds::TOOL_START,
        kinds::TOOL_DONE,
    ] {
        assert!(events.iter().any(|event| event.kind == kind), "{kind} is missing");
    }
    assert!(events.iter().all(|event| event.ts > 1.0e9 && event.data.is_object()));
    let done = play.stage.of_kind(kinds::TOOL_DONE).remove(0);
    let call_id = done["call_id"].as_str().unwrap().to_owned();
    let run_id = play.stage.of_kind(kinds::TURN_START)[0]["run_id"].clone();
    let mut ledger = Vec::new();
    play.stage.gate.read(|reader| reader.export(&mut ledger)).unwrap();
    let ledger = String::from_utf8(ledger).unwrap();
    let run_id = run_id.as_str().unwrap();
    assert!(ledger.lines().any(|line| line.contains(&call_id) && line.contains(run_id)));
    let actions = play.stage.of_kind(kinds::ACTIONS).remove(0);
    assert_eq!(actions["actions"][1]["outcome"], "ignored: there is no such action");
}

#[tokio::test]
async fn notes_change_the_state_and_the_next_prompt_shows_it() {
    let patch = json!({
        "set_goals": ["write a book"], "add_open_loops": ["chapter 1"],
        "add_decisions": ["in English"], "add_constraints": ["no more than 100 pages"],
        "set_episode_summary": "began", "add_memory_tags": ["book"],
    });
    let second = json!({"close_open_loops": ["chapter 1"], "set_goals": []});
    let play = Play::new(says(&[
        &format!("Fine.{}", notes(&patch)),
        &format!("Closed.{}{}", notes(&second), notes(&json!({"set_goals": ["hijack"]}))),
    ]))
    .await;
    let report = play.say("start").await;
    assert_eq!(report.text, "Fine.");
    let state = play.stage.checkpoint().state;
    assert_eq!(
        (state.goals[0].as_str(), state.open_loops[0].as_str()),
        ("write a book", "chapter 1")
    );
    play.say("close it").await;
    let system = play.asked().pop().unwrap()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("goals:\n  - write a book\n"), "{system}");
    let state = play.stage.checkpoint().state;
    // The first block of an answer counts; what it clears stays cleared.
    assert!(state.goals.is_empty() && state.open_loops.is_empty());
    let warning = play.stage.of_kind(kinds::WARNING);
    assert_eq!(warning[0]["ignored"], 1);
}

#[tokio::test]
async fn a_model_may_ask_for_a_permission_and_grants_itself_none() {
    let patch = json!({"actions": [
        "request_permission:net:huggingface.co", "grant_permission:net:evil.example",
        "grant_permission:everything", "request_permission:net:huggingface.co",
    ]});
    let play = Play::new(says(&[&notes(&patch), "Still here.", "And now."])).await;
    play.say("ask").await;
    let state = play.stage.checkpoint().state;
    assert_eq!(state.capabilities_granted, Vec::<String>::new());
    assert_eq!(state.capabilities_pending, ["net:evil.example", "net:huggingface.co"]);
    assert!(play.stage.gate.grants().is_empty());
    let actions = play.stage.of_kind(kinds::ACTIONS).remove(0);
    assert_eq!(
        actions["actions"][1]["outcome"],
        "only a person grants; taken as a request: a person is asked"
    );
    // A person grants one of them; the state is what the ledger says.
    let capability = Capability::parse("net:huggingface.co").unwrap();
    let holder = Holder { key: None, session: Some("notes".into()) };
    play.stage
        .gate
        .grant_capability(&play.stage.admin, capability, holder, None, None)
        .await
        .unwrap();
    play.say("now?").await;
    let state = play.stage.checkpoint().state;
    assert_eq!(state.capabilities_granted, ["net:huggingface.co"]);
    assert_eq!(state.capabilities_pending, ["net:evil.example"]);
    // What somebody writes into the checkpoint grants nothing.
    let file = play.place.path().join("sessions/notes/checkpoint.json");
    let text =
        std::fs::read_to_string(&file).unwrap().replace("net:huggingface.co", "net:forged.example");
    std::fs::write(&file, text).unwrap();
    play.say("again").await;
    assert_eq!(play.stage.checkpoint().state.capabilities_granted, ["net:huggingface.co"]);
}

#[tokio::test]
async fn text_is_streamed_without_marks_and_what_is_asked_again_is_taken_back() {
    let block = call("text.give", "x");
    let script = json!({"replies": [
        {"content": format!("Look. {block}"), "chunk": 3},
        {"content": "Half an answer", "chunk": 4, "drop_after": 2},
        {"content": "<think>hm</think>Whole."},
    ]});
    let play = Play::new(script).await;
    let (report, heard) = play.stage.hear("go").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(report.text, "Look. \n\nWhole.".replace(". \n", ".\n"));
    let mut shown = String::new();
    let mut retracted = 0;
    let mut last_round = 0;
    for event in heard {
        match event {
            AgentEvent::Text(text) => shown.push_str(&text),
            AgentEvent::Retract => {
                shown.truncate(last_round);
                retracted += 1;
            }
            AgentEvent::Step(step) if step.kind == kinds::LLM_DONE => last_round = shown.len(),
            _ => {}
        }
    }
    assert_eq!((shown.as_str(), retracted), ("Look. Whole.", 1));
    let attempts: Vec<Value> =
        play.stage.of_kind(kinds::LLM_DONE).into_iter().map(|done| done["ok"].clone()).collect();
    assert_eq!(attempts, [true, false, true]);
}

#[tokio::test]
async fn native_calls_are_the_same_calls() {
    let script = json!({"replies": [
        {"content": "", "tool_calls": [{"id": "n1", "name": "text.give", "arguments": {"text": "x"}}]},
        {"content": "Done."},
    ]});
    let setting = Setting {
        model: Box::new(|model| model.tools = tollgate_models::ToolMode::Native),
        ..Setting::new(script)
    };
    let play = Play::with(setting).await;
    let report = play.say("go").await;
    assert!(report.ok, "{report:?}");
    let requests = play.model.requests();
    let body = &requests.last().unwrap().body;
    assert!(body["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    let messages = body["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    assert_eq!((last["role"].as_str(), last["tool_call_id"].as_str()), (Some("tool"), Some("n1")));
    assert_eq!(messages[messages.len() - 2]["tool_calls"][0]["id"], "n1");
    assert_eq!(result(last)["output"], json!({"text": "x"}));
}

#[tokio::test]
async fn budgets_end_a_turn_and_say_so() {
    let forever = json!({"loop": true, "replies": [{"content": call("text.give", "x")}]});
    let play = Play::new(forever.clone()).await;
    let ask = |budget| TurnRequest { budget, ..TurnRequest::new("go") };
    let report =
        play.stage.ask(ask(Budget { rounds: Some(3), ..Budget::default() })).await.unwrap();
    assert!(!report.ok);
    assert_eq!((report.totals.rounds, report.totals.tool_calls), (3, 3));
    assert!(report.error.as_ref().unwrap().message.contains("3 rounds are used up"), "{report:?}");

    let tokens = Budget { tokens: Some(6_000), rounds: Some(500), ..Budget::default() };
    let report = play.stage.ask(ask(tokens)).await.unwrap();
    let error = report.error.unwrap();
    assert_eq!(error.code, "BUDGET_DENIED");
    let used = report.totals.input_tokens + report.totals.output_tokens;
    assert!(used <= 6_000, "{used}");

    let money = Budget { usd_micros: Some(5), ..Budget::default() };
    let refused = play.stage.ask(ask(money)).await.unwrap_err();
    assert!(refused.object(None).message.contains("has no price"), "{refused:?}");

    let setting = Setting {
        model: Box::new(|model| {
            model.price =
                Some(serde_json::from_value(json!({"input": 1.0, "output": 2.0})).unwrap());
        }),
        ..Setting::new(forever)
    };
    let play = Play::with(setting).await;
    let money = Budget { usd_micros: Some(20_000), rounds: Some(500), ..Budget::default() };
    let report = play.stage.ask(ask(money)).await.unwrap();
    assert_eq!(report.error.unwrap().code, "BUDGET_DENIED");
    assert!((1..=20_000).contains(&report.totals.usd_micros), "{:?}", report.totals);
}

#[tokio::test]
async fn time_and_a_person_stop_a_turn_in_the_middle() {
    let script = json!({"loop": true, "replies": [
        {"content": format!("{}{}", notes(&json!({"set_goals": ["kept"]})), call("text.hang", "x"))},
    ]});
    let play = Play::new(script).await;
    let budget = Budget { seconds: Some(4), ..Budget::default() };
    let report = play.stage.ask(TurnRequest { budget, ..TurnRequest::new("go") }).await.unwrap();
    assert_eq!((report.ok, report.stop), (false, Some(Stop::Time)));
    // What was noted before it was stopped counts.
    assert_eq!(play.stage.checkpoint().state.goals, ["kept"]);

    let cancel = CancellationToken::new();
    let told = cancel.clone();
    let listener = Arc::new(move |event| {
        if matches!(&event, AgentEvent::Step(step) if step.kind == kinds::TOOL_START) {
            told.cancel();
        }
    });
    let (by, request) = (&play.stage.by, TurnRequest::new("again"));
    let report =
        play.stage.runtime.run_until(by, &name(), request, listener, cancel).await.unwrap();
    assert_eq!((report.ok, report.stop), (false, Some(Stop::Cancelled)));
    let checkpoint = play.stage.checkpoint();
    assert_eq!(checkpoint.revision, 2);
    assert!(checkpoint.recent_messages.iter().any(|message| message.content == "again"));
}

#[tokio::test]
async fn one_turn_at_a_time_in_a_session_and_it_can_be_cancelled_by_name() {
    let script = json!({"loop": true, "replies": [{"content": call("text.hang", "x")}]});
    let play = Play::new(script).await;
    let started = Arc::new(tokio::sync::Notify::new());
    let (runtime, by, tell) =
        (play.stage.runtime.clone(), play.stage.by.clone(), Arc::clone(&started));
    let listener = Arc::new(move |event| {
        if matches!(&event, AgentEvent::Step(step) if step.kind == kinds::TOOL_START) {
            tell.notify_one();
        }
    });
    let running =
        tokio::spawn(
            async move { runtime.run(&by, &name(), TurnRequest::new("one"), listener).await },
        );
    started.notified().await;
    let refused = play.stage.ask(TurnRequest::new("two")).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert!(play.stage.runtime.view(&play.stage.by, &name()).unwrap().running);
    assert!(play.stage.runtime.cancel(&play.stage.by, &name()).unwrap());
    assert_eq!(running.await.unwrap().unwrap().stop, Some(Stop::Cancelled));
    assert!(!play.stage.runtime.cancel(&play.stage.by, &name()).unwrap());
}

#[tokio::test]
async fn without_a_budget_or_a_policy_nothing_runs_where_there_is_no_usual_one() {
    let mut setting = Setting::new(says(&["Hello."]));
    setting.config.default_budget = BudgetDefaults::Off(OffWord::Off);
    let play = Play::with(setting).await;
    let refused = play.stage.ask(TurnRequest::new("go")).await.unwrap_err();
    assert!(refused.object(None).message.contains("the turn has no budget"), "{refused:?}");
    let budget =
        Budget { rounds: Some(2), seconds: Some(60), tokens: Some(50_000), ..Budget::default() };
    assert!(play.stage.ask(TurnRequest { budget, ..TurnRequest::new("go") }).await.unwrap().ok);

    let mut setting = Setting::new(says(&["Hello."]));
    setting.config.default_policy = PolicyDefault::Off(OffWord::Off);
    let play = Play::with(setting).await;
    let refused = play.stage.ask(TurnRequest::new("go")).await.unwrap_err();
    assert!(refused.object(None).message.contains("the session has no policy"), "{refused:?}");
    assert!(play.model.requests().is_empty());
}

#[tokio::test]
async fn a_session_narrows_what_its_calls_may_do_and_what_the_model_is_told_of() {
    let mut setting = Setting::new(says(&[&call("note.append", "x"), "Done."]));
    setting.settings = SessionSettings {
        policy: Some(serde_json::from_value(json!({"deny": ["note.append"]})).unwrap()),
        ..SessionSettings::default()
    };
    let play = Play::with(setting).await;
    play.say("go").await;
    assert!(play.stage.marks().is_empty());
    let system = play.asked()[0][0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("- text.give: ") && !system.contains("note.append"), "{system}");
    assert!(result(&play.last_asked())["error"].as_str().unwrap().contains("PERMISSION_DENIED"));
}

#[tokio::test]
async fn roles_think_one_after_the_other_and_only_the_last_acts() {
    let sneaky = format!(
        "Plan: give.{}{}",
        call("note.append", "sneaky"),
        notes(&json!({"set_goals": ["sneaky"]}))
    );
    let mut setting = Setting::new(says(&[&sneaky, "Critique: fine.", "Answer."]));
    setting.settings.roles =
        serde_json::from_value(json!(["planner", "critic", "governor"])).unwrap();
    let play = Play::with(setting).await;
    let report = play.say("go").await;
    assert_eq!(report.text, "Answer.");
    assert!(play.stage.marks().is_empty());
    assert!(play.stage.checkpoint().state.goals.is_empty());
    let asked = play.asked();
    let system = |at: usize| asked[at][0]["content"].as_str().unwrap();
    assert!(!system(0).contains("=== TOOLS ==="));
    assert!(system(1).contains("planner:\nPlan: give."), "{}", system(1));
    assert!(system(2).contains("critic:\nCritique: fine.") && system(2).contains("=== TOOLS ==="));
    assert_eq!(play.stage.of_kind(kinds::WARNING)[0]["ignored"], json!(["TOOL_CALLS", "NOTES"]));
}

#[tokio::test]
async fn what_leaves_the_history_goes_into_memory_and_comes_back_when_it_fits() {
    let mut replies: Vec<Value> =
        (0..8).map(|n| json!({"content": format!("Noted number {n}.")})).collect();
    replies.push(json!({"content": "The password of the door is marzipan [mem:mem_nope]."}));
    let mut setting = Setting::new(json!({"replies": replies}));
    setting.config.keep_messages = Some(6);
    let play = Play::with(setting).await;
    play.say("The zeppelin lands on Tuesday").await;
    for n in 0..7 {
        play.say(&format!("filler {n}")).await;
    }
    let checkpoint = play.stage.checkpoint();
    assert!(checkpoint.recent_messages.len() <= 6);
    assert!(!checkpoint.state.memory_refs.is_empty());
    assert!(checkpoint.state.episode_summary.contains("zeppelin"));
    play.say("When does the zeppelin land?").await;
    let system = play.asked().pop().unwrap()[0]["content"].as_str().unwrap().to_owned();
    let block = system.split("=== RETRIEVED_MEMORY ===\n").nth(1).expect("there is a block");
    assert!(
        block.starts_with("- id=mem_") && block.contains("zeppelin lands on Tuesday"),
        "{block}"
    );
    let retrieval = play.stage.of_kind(kinds::RETRIEVAL).pop().unwrap();
    let id = retrieval["items"][0]["id"].as_str().unwrap();
    assert!(checkpoint.state.memory_refs.iter().any(|known| known == id));
    let warning = play.stage.of_kind(kinds::WARNING).pop().unwrap();
    assert_eq!(warning["citations"], json!(["mem_nope"]));
}

#[tokio::test]
async fn a_model_sums_up_what_leaves_when_it_is_asked_to() {
    let mut replies: Vec<Value> = (0..2).map(|n| json!({"content": format!("n{n}")})).collect();
    replies
        .push(json!({"content": format!("ok{}", notes(&json!({"actions": ["condense_smart"]})))}));
    replies.push(json!({"content": "They talked about numbers."}));
    let mut setting = Setting::new(json!({"replies": replies}));
    setting.config.keep_messages = Some(4);
    // Nothing is folded before the model asks for it.
    let play = Play::with(setting).await;
    play.say("a").await;
    play.say("b").await;
    play.say("c").await;
    let state = play.stage.checkpoint().state;
    assert_eq!(state.episode_summary, "They talked about numbers.");
    assert!(!state.memory_refs.is_empty());
}

#[tokio::test]
async fn tags_keep_a_turn_in_memory() {
    let answer =
        format!("The key is under the mat.{}", notes(&json!({"add_memory_tags": ["house"]})));
    let play = Play::new(says(&[&answer])).await;
    play.say("Where is the key?").await;
    let found = play.stage.runtime.memory().of_session("notes", 10, None).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].tags, ["house"]);
    assert!(found[0].text.contains("under the mat"));
}

#[tokio::test]
async fn secrets_are_sent_to_the_model_and_kept_nowhere() {
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH";
    let play = Play::new(says(&[&call("text.give", secret), &format!("It is {secret}.")])).await;
    let report = play.say(&format!("my key is {secret}")).await;
    assert!(report.text.contains(secret));
    assert!(result(&play.last_asked())["output"]["text"] == *secret);
    fn walk(folder: &std::path::Path, secret: &str) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, secret);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{}", path.display());
            }
        }
    }
    walk(play.place.path(), secret);
}

#[tokio::test]
async fn a_caller_without_the_right_to_call_runs_nothing() {
    let play = Play::new(says(&["Hello."])).await;
    let nobody = play.stage.gate.identify(None);
    let refused = play
        .stage
        .runtime
        .run(&nobody, &name(), TurnRequest::new("go"), Arc::new(|_| {}))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::MissingApiKey);
    let settings = SessionSettings::default();
    let refused = play.stage.runtime.set(&play.stage.by, &name(), &settings).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ScopeMissing);
    for bad in ["", "   "] {
        assert!(play.stage.ask(TurnRequest::new(bad)).await.is_err());
    }
}

#[tokio::test]
async fn memories_are_found_by_meaning_where_a_server_gives_vectors() {
    let mut replies: Vec<Value> =
        (0..5).map(|n| json!({"content": format!("Noted {n}.")})).collect();
    replies.push(json!({"content": "In spring."}));
    let mut setting = Setting::new(json!({"replies": replies}));
    setting.config.keep_messages = Some(4);
    setting.config.embedding_model = Some("fake".to_owned());
    setting.model = Box::new(|model| model.embedding_model = Some("fake-embedding".to_owned()));
    let play = Play::with(setting).await;
    for text in ["tulips bloom in spring", "engines need oil", "ships need water", "x", "y"] {
        play.say(text).await;
    }
    let embedded =
        play.model.requests().iter().filter(|seen| seen.path.contains("embeddings")).count();
    assert!(embedded > 0);
    play.say("when do tulips bloom").await;
    let retrieval = play.stage.of_kind(kinds::RETRIEVAL).pop().unwrap();
    assert!(retrieval["items"][0]["excerpt"].as_str().unwrap().contains("tulips"), "{retrieval}");
    // Vectors are made by calls like any other.
    let mut ledger = Vec::new();
    play.stage.gate.read(|reader| reader.export(&mut ledger)).unwrap();
    assert!(String::from_utf8(ledger).unwrap().contains("model.embed"));
}

#[tokio::test]
async fn what_embeddings_take_is_counted_and_comes_again_in_a_replay() {
    let replies: Vec<Value> = (0..5).map(|n| json!({"content": format!("Noted {n}.")})).collect();
    let mut setting = Setting::new(json!({"replies": replies}));
    setting.config.keep_messages = Some(2);
    setting.config.embedding_model = Some("fake".to_owned());
    setting.model = Box::new(|model| {
        model.embedding_model = Some("fake-embedding".to_owned());
        let price = json!({"input": 10.0, "output": 10.0});
        model.price = Some(serde_json::from_value(price).unwrap());
    });
    let play = Play::with(setting).await;
    let mut last = None;
    for text in ["tulips bloom in spring", "engines need oil", "ships need water", "and tulips?"] {
        last = Some(play.say(text).await);
    }
    let totals = last.unwrap().totals;
    let of = |kind: &str| play.stage.of_kind(kind).pop().unwrap();
    let (found, kept, answered) =
        (of(kinds::RETRIEVAL), of(kinds::MEMORY_WRITE), of(kinds::LLM_DONE));
    let number = |value: &Value| value.as_u64().unwrap();
    let embedded = |name: &str| {
        let [one, other] = [&found, &kept].map(|event| number(&event["embedding"][name]));
        assert!(one > 0 && other > 0, "{found} {kept}");
        one + other
    };
    assert_eq!(u64::from(totals.model_calls), 1 + embedded("calls"));
    let asked = number(&answered["usage"]["input_tokens"]);
    assert_eq!(totals.input_tokens, asked + embedded("tokens"));
    assert_eq!(totals.usd_micros, number(&answered["cost_usd_micros"]) + embedded("usd_micros"));
    let again = replay_turn(&play.stage.session(), 4).await.unwrap().pop().unwrap();
    assert!(again.is_same(), "{:?}", again.divergence);
}

#[tokio::test]
async fn that_memories_are_found_by_words_alone_is_told() {
    let mut setting = Setting::new(says(&["One.", "Two."]));
    setting.config.keep_messages = Some(2);
    // The model that is to make vectors cannot.
    setting.config.embedding_model = Some("fake".to_owned());
    let play = Play::with(setting).await;
    assert!(play.say("first").await.ok);
    assert!(play.say("second").await.ok);
    let warnings = play.stage.of_kind(kinds::WARNING);
    let told = |warning: &Value| {
        warning["problem"]
            .as_str()
            .unwrap()
            .starts_with("some memories are found by their words alone: ")
    };
    assert!(warnings.iter().any(told), "{warnings:?}");
    let again = replay_turn(&play.stage.session(), 2).await.unwrap().pop().unwrap();
    assert!(again.is_same(), "{:?}", again.divergence);
}

#[tokio::test]
async fn an_answer_at_once_that_is_too_long_is_cut_counted_and_replayed() {
    let endless = "a word ".repeat(100_000);
    let play = Play::new(json!({"replies": [{"content": endless}]})).await;
    let budget = Budget { tokens: Some(50_000), ..Budget::default() };
    let report = play.stage.ask(TurnRequest { budget, ..TurnRequest::new("go") }).await.unwrap();
    assert_eq!(report.error.unwrap().code, "BUDGET_DENIED");
    assert!(report.text.len() < 40_000, "{}", report.text.len());
    // What was left out was written all the same.
    assert!(report.totals.output_tokens > 150_000, "{:?}", report.totals);
    let warnings = play.stage.of_kind(kinds::WARNING);
    assert!(warnings[0]["problem"].as_str().unwrap().contains("cut off"), "{warnings:?}");
    let again = replay_turn(&play.stage.session(), 1).await.unwrap().pop().unwrap();
    assert!(again.is_same(), "{:?}", again.divergence);
}

#[tokio::test]
async fn a_server_that_writes_more_than_it_was_asked_for_is_left_and_the_turn_says_so() {
    let endless = format!("{}{}", "a word ".repeat(40_000), call("note.append", "mark"));
    let mut setting = Setting::new(json!({"replies": [{"content": endless, "chunk": 100}]}));
    setting.model = Box::new(|model| {
        let price = json!({"input": 1.0, "output": 100.0});
        model.price = Some(serde_json::from_value(price).unwrap());
    });
    let play = Play::with(setting).await;
    let budget = Budget { usd_micros: Some(50_000), ..Budget::default() };
    let report = play.stage.ask(TurnRequest { budget, ..TurnRequest::new("go") }).await.unwrap();
    let error = report.error.unwrap();
    assert_eq!(error.code, "BUDGET_DENIED");
    assert!(error.message.contains("overdrawn"), "{}", error.message);
    // It is left as soon as that is plain: not ten times as much is paid.
    assert!(report.totals.usd_micros < 500_000, "{:?}", report.totals);
    assert!(report.text.starts_with("a word a word") && report.text.len() < 20_000);
    assert!(play.stage.marks().is_empty());
    let again = replay_turn(&play.stage.session(), 1).await.unwrap().pop().unwrap();
    assert!(again.is_same(), "{:?}", again.divergence);
}

#[tokio::test]
async fn a_request_that_cannot_be_takes_no_name() {
    let play = Play::new(says(&["Here."])).await;
    let other = play.place.key();
    assert!(!other.is_empty());
    assert!(play.stage.ask(TurnRequest::new(" ")).await.is_err());
    let budget = Budget { rounds: Some(0), ..Budget::default() };
    assert!(play.stage.ask(TurnRequest { budget, ..TurnRequest::new("x") }).await.is_err());
    let owner = play.stage.gate.session_owner(name().as_str());
    assert_eq!(owner, None);
}

#[tokio::test]
async fn a_server_that_wants_to_be_asked_tomorrow_is_not_waited_for() {
    let later = json!({"status": 429, "headers": {"retry-after": "3600"}});
    let play = Play::new(json!({"replies": [later]})).await;
    let report = play.say("now").await;
    assert!(!report.ok);
    assert_eq!(report.totals.model_calls, 1);
    assert!(play.stage.of_kind(kinds::LLM_RETRY).is_empty());
}
