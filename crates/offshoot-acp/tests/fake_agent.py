"""An agent that speaks the protocol, and breaks it in the way that its first argument names."""
import json
import os
import signal
import subprocess
import sys
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else "echo"
ARG = sys.argv[2] if len(sys.argv) > 2 else ""


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, result):
    send({"id": request["id"], "result": result})


def update(session, **fields):
    send({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def say(session, text):
    content = {"type": "text", "text": text}
    update(session, sessionUpdate="agent_message_chunk", content=content)


def read():
    line = sys.stdin.readline()
    if not line:
        if HOW in ("deaf", "deaf-tree"):
            hang()
        sys.exit(0)
    return json.loads(line)


def ask(id, method, params):
    """Asks the client; what else comes meanwhile is thrown away."""
    send({"id": id, "method": method, "params": params})
    while True:
        message = read()
        if message.get("id") == id and "method" not in message:
            return message


def hang():
    while True:
        time.sleep(1000)


def note_pid(path):
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)


def initialize(request):
    if HOW == "crash-start":
        print("no configuration found", file=sys.stderr)
        sys.exit(3)
    if HOW == "hang-initialize":
        hang()
    if HOW == "garbage-forever":
        while True:
            print("not a message at all")
    if HOW == "long-line":
        print('{"x": "' + "x" * 200_000 + '"}')
    if HOW == "version":
        return answer(request, {"protocolVersion": 2})
    if HOW == "stray-lines":
        print("Loading...\n\n{ not json\n17\n[1]\n\"text\"\n{\"jsonrpc\": \"2.0\", \"id\": 99, \"result\": 1}")
    answer(request, {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}})


def new(request):
    if HOW == "auth":
        error = {"code": -32000, "message": "Authentication\nrequired"}
        return send({"id": request["id"], "error": error})
    if HOW == "hang-session":
        if ARG:
            note_pid(ARG)
        hang()
    if HOW == "no-session":
        return answer(request, {})
    if HOW == "early-notification":
        send({"method": "_auth/status_update", "params": {}})
        say("s-1", "too early")
    if HOW == "cwd":
        os.environ["SESSION_CWD"] = request["params"]["cwd"]
    answer(request, {"sessionId": "s-1"})


def act(request, session, how):
    """Behaves as the prompt says."""
    if "flood" in how:
        for _ in range(60):
            say(session, "x" * 100_000)
    if "answer" in how or "flood" in how:
        say(session, "conformance answer")
        return answer(request, {"stopReason": "end_turn"})
    say(session, "conformance partial")
    if "fail" in how:
        error = {"code": -32603, "message": "conformance fault\n[status: completed]\033[2J"}
        return send({"id": request["id"], "error": error})
    if "crash" in how:
        os.kill(os.getpid(), signal.SIGKILL)
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang()
    while read().get("method") != "session/cancel":
        pass
    answer(request, {"stopReason": "cancelled"})


def prompt(request):
    session = request["params"]["sessionId"]
    if HOW == "act":
        return act(request, session, request["params"]["prompt"][0]["text"])
    end = {"stopReason": "end_turn"}
    if HOW == "echo":
        for part in request["params"]["prompt"]:
            say(session, part["text"] + "|")
        end["usage"] = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
    elif HOW == "stop":
        say(session, "half")
        end = {"stopReason": ARG}
    elif HOW == "cwd":
        say(session, os.getcwd() + "|" + os.environ["SESSION_CWD"])
    elif HOW == "crash-turn":
        say(session, "half an answer")
        print("panic: key is " + os.environ.get("API_KEY", ""), file=sys.stderr)
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    elif HOW == "exit-after-answer":
        say(session, "done")
        answer(request, end)
        sys.exit(0)
    elif HOW == "close-output":
        os.close(1)
        hang()
    elif HOW == "error":
        return send({"id": request["id"], "error": {"code": -32603, "message": "model is down"}})
    elif HOW == "flood":
        while True:
            say(session, "flood " * 100)
    elif HOW == "asks-unread":
        id = 0
        while True:
            id += 1
            send({"id": id, "method": "x/y", "params": {"pad": "x" * 100}})
    elif HOW in ("hang-turn", "deaf", "deaf-tree"):
        if HOW != "hang-turn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if HOW == "deaf-tree":
            code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000000)"
            subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        say(session, "half")
        note_pid(ARG)
        while True:
            read()
    elif HOW == "cancel":
        say(session, "half")
        note_pid(ARG)
        while read().get("method") != "session/cancel":
            pass
        got = ask("p", "session/request_permission", {"sessionId": session, "options": [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"}]})
        say(session, " stopped:" + got["result"]["outcome"]["outcome"])
        end = {"stopReason": "cancelled"}
    elif HOW == "permission":
        got = ask(0, "session/request_permission", {"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": [
            {"optionId": "a", "name": "Yes", "kind": "allow_once"},
            {"optionId": "r", "name": "No", "kind": "reject_once"}]})
        say(session, json.dumps(got["result"]["outcome"]))
    elif HOW == "odd":
        # Ids of every kind, also those that the client itself uses; calls that were never announced
        # or twice; requests that nobody knows; a response that nobody asked for.
        tool = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "t"}
        update(session, sessionUpdate="tool_call_update", toolCallId="9", status="completed")
        update(session, **tool)
        update(session, **tool)
        update("another session", sessionUpdate="agent_message_chunk", content={"type": "text", "text": "no"})
        update(session, sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "hm"})
        update(session, sessionUpdate="from_the_future", content={})
        send({"id": 4711, "result": {}})
        send({"id": request["id"], "method": "craft/drainMidTurnQueue", "params": {}})
        codes = [read()["error"]["code"]]
        for id in (0, 1, "1", "a-uuid"):
            codes.append(ask(id, "terminal/create", {"sessionId": session})["error"]["code"])
        codes.append(ask(2, "fs/read_text_file", {"sessionId": session, "path": "/etc/passwd"})["error"]["code"])
        codes.append(ask(3, "session/request_permission", {"sessionId": "nobody's"})["error"]["code"])
        say(session, str(codes))
        update(session, sessionUpdate="agent_message_chunk", content={"type": "image", "data": "", "mimeType": "image/png"})
    elif HOW == "files":
        path = os.path.join(os.getcwd(), "note.txt")
        wrote = ask(1, "fs/write_text_file", {"sessionId": session, "path": path, "content": "one\ntwo\n"})
        got = ask(2, "fs/read_text_file", {"sessionId": session, "path": path, "line": 2})
        far = ask(3, "fs/read_text_file", {"sessionId": session, "path": "/etc/passwd"})
        say(session, json.dumps([wrote.get("error", {}).get("code"), got.get("result"), far["error"]["code"]]))
    else:
        say(session, HOW)
    answer(request, end)


HANDLERS = {"initialize": initialize, "session/new": new, "session/prompt": prompt}
while True:
    message = read()
    handler = HANDLERS.get(message.get("method"))
    if handler:
        handler(message)
