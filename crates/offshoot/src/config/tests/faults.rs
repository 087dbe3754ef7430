//! Files that are refused, and in which words.

use super::*;

#[test]
fn each_bad_file_is_one_line_that_names_the_key() {
    let faults = [
        "tasks = ",
        "[tasks]\nretain_finished = 1\nretain_finished = 2",
        "unknown = 1",
        "[tasks]\nmax_live = 1",
        "[tools.bush]\nenabled = true",
        "tasks = 1",
        "tasks = []",
        "[tasks]\nmax_live_per_owner = 0",
        "[tasks]\nmax_live_per_owner = -1",
        "[tasks]\nmax_live_per_owner = 1.5",
        "[tasks]\nmax_live_per_owner = nan",
        "[tasks]\nmax_live_per_owner = inf",
        "[tasks]\nmax_live_per_owner = \"ten\"",
        "[limits]\nmax_depth = 4294967296",
        "[limits]\nmax_steps_per_turn = 0",
        "[limits]\nmax_parallel_tools = 0",
        "[limits]\nmax_waiting_messages = 0",
        "[notices]\ndelivery = \"loud\"",
        "[tools.bash]\nenabled = \"yes\"",
        "[tools.bash]\ntimeout_ms = 0",
        "[tools.bash]\nenv_allow = \"HTTPS_PROXY\"",
        "[tools.bash]\nenv_allow = [\"HTTPS_PROXY\", \"OURS\", \"OURS\", \"http_proxy\", \"A-B.C\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"A=B\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"A\\u0000B\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \" A\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"MY_*\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"*\"]",
        "[tools.task_output]\nwait_timeout_ms = 600001",
        "[tools.task_output]\nmax_wait_timeout_ms = 1000",
        "[tools.task_output]\nmax_bytes = 0",
        "[tools.task_output]\nmax_bytes = 2047",
        "subagent = 1",
        "subagent = [1]",
        "[subagent]\nprovider = \"spawn\"",
        "[[subagent]]\nprovder = \"spawn\"",
        "[[subagent]]\nprovider = \"peer\"",
        "[[subagent]]\nbackground_mode = \"detached\"",
        "[[subagent]]\ntool_name = \"\"",
        "[[subagent]]\ntool_name = \"two words\"",
        "[[subagent]]\ntool_name = \"bash\"",
        "[[subagent]]\ntool_name = \"structured_output\"",
        "[[subagent]]\n[[subagent]]",
        "[[subagent]]\ntool_filter = {}",
        "[[subagent]]\ntool_filter = []",
        "[[subagent]]\ntool_filter = { allow = [] }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\"], allow = [] }",
        "[[subagent]]\ntool_filter = { deny = \"bash\" }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\", \"\"] }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\", \"bsah\"] }",
        "[[subagent]]\ntool_filter = { allow = [\"Bash\"] }",
        "[[subagent]]\ntool_filter = { allow = [\"ask\", \"bash\"] }\n[[subagent]]\ntool_name = \"ask\"",
        "[[subagent]]\ntool_filter = { allow = [\"bash\", \"task_list\"], deny = [\"task_list\"] }",
        "[tools.bash]\nenabled = false\n[[subagent]]\ntool_filter = { deny = [\"bash\"] }",
        "[tools.bash]\nenabled = false\n[[subagent]]\ntool_filter = { deny = [\"x\"] }",
        "[[acp]]\nname = \"peer\"",
        "[[acp]]\nname = \" \"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\npermission = \"ask\"",
        "[[process]]\nname = \"cli\"\ncommand = \"\"",
        "[[process]]\nname = \"fork\"\ncommand = \"a\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[acp]]\nname = \"a\"\ncommand = \"a\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nanswer = \"item..text\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { x = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { 256 = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ntimeout_ms = 0",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ncwd = \"\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"a=b\" = \"c\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"*\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"A=B\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"A*B\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \" A\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nfiles = \"all\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nstart_timeout_ms = 0",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { \"+5\" = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { 5 = \"refusal\", 05 = \"error\" }",
        "[[process]]\nname = \"a\\nb\"\ncommand = \"a\"",
        "[[process]]\nname = \"a \"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\\u0007b\"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\\u202eb\"\ncommand = \"a\"",
        "[[acp]]\nname = \"0123456789012345678901234567890123456789012345678901234567890123\"\ncommand = \"a\"",
        "[[acp]]\nname = \"01234567890123456789012345678901234567890123456789012345678901234\"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\\u0000b\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\\u0000b\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nargs = [\"b\", \"\\u0000\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nargs = [\"two\\nlines\", \"b\\u0000\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv = { A = \"two\\nlines\", B = \"c\\u0000d\" }",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"\" = \"c\" }",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"a\\nb\" = \"c\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"a\\u0007b\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ncwd = \"a\\u0000b\"",
        "[[subagent]]\ntool_name = \"a\\nb\"",
        "[[subagent]]\nprovider = \"a\\nb\"",
        "[[process]]\nname = \"cli\"\ncommand = \"a\"\n[[acp]]\nname = \"peer\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"per\"",
        "[model]\nname = \"openai/a\"\nbase_url = \"http://a\\nb/\"",
        "[model]\nname = \"openai/a\"\nbase_url = \"\"",
        "[model]\nmax_output_tokens = 0",
        "[model]\nmax_output_tokens = -1",
        "[model]\nmax_output_tokens = \"many\"",
        "[model]\nmax_output_tokens = 4294967296",
        "[model]\nmax_output_tokens = 4294967295",
        "[tasks]\nmax_live_per_owner =\n",
        "[tasks]\nmax_live_per_owner = ten",
        "[notices]\ndelivery = quiet",
        "[tools.bash]\nenabled = no",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"continuable\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\npersona = \"x\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\ntool_filter = { deny = [\"bash\"] }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\" }",
        "[[subagent]]\noutput_schema = { type = \"object\" }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"array\" }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\", properties = { a = { type = \"strin\" } } }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\", properties = { a = { \"$ref\" = \"a.json\" } } }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = \"no/such/schema.json\"",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = 5",
    ];
    let table: Vec<String> = faults
        .iter()
        .map(|text| format!("{text}\n  {}", shown(toml(text))))
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn the_graces_of_children_fit_into_that_of_a_killed_task() {
    let limits = |stop: u64, dispose: u64| {
        toml(&format!(
            "[limits]\nsubagent_stop_grace_ms = {stop}\nsubagent_dispose_grace_ms = {dispose}"
        ))
    };
    assert!(limits(14_999, 15_000).is_ok());
    let error = limits(15_000, 15_000).expect_err("too long");
    assert_eq!(error.code(), "CONFIG_CONTRADICTION");
    assert!(error.to_string().contains("30000 ms"), "{error}");
    assert!(limits(u64::MAX >> 1, u64::MAX >> 1).is_err());
    assert!(limits(0, 1).is_err());
}

#[test]
fn a_filter_may_name_a_tool_that_the_program_adds() {
    let text = "[[subagent]]\ntool_filter = { allow = [\"render\"] }";
    let layers = ConfigLayers::new().toml("f.toml", text).expect("TOML");
    let error = layers.build().expect_err("an unknown tool");
    assert_eq!(error.code(), "CONFIG_UNKNOWN_TOOL");
    assert!(layers.tool("render").build().is_ok());
}
