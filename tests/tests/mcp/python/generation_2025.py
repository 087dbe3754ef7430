"""Drives `offshoot mcp` with the official SDK, 2025-11-25 generation.

Usage: python generation_2025.py SERVER ARGS...   (prints OK at the end)
"""

import asyncio
import os
import sys

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client


def text(result):
    return [block.text for block in result.content]


async def main():
    logs, reports = [], []

    async def log(params):
        logs.append(params.data)

    async def progress(done, total, message):
        reports.append(done)

    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, logging_callback=log) as session:
            info = await session.initialize()
            assert info.protocolVersion == "2025-11-25", info
            assert info.serverInfo.name == "offshoot", info
            names = {tool.name for tool in (await session.list_tools()).tools}
            assert {"bash", "subagent", "task_output", "task_list", "task_kill"} <= names, names
            assert {"send_message", "list_agents", "interrupt_agent"} <= names, names
            await session.send_ping()

            # A call that takes a while reports its progress.
            result = await session.call_tool(
                "bash", {"command": "sleep 1.5; echo waited"}, progress_callback=progress
            )
            assert text(result)[0].startswith("waited\n"), result
            assert reports and reports == sorted(reports), reports

            # Background work, told of by a log message and by the next result.
            await session.set_logging_level("info")
            result = await session.call_tool(
                "bash", {"command": "echo behind", "run_in_background": True}
            )
            assert text(result)[0] == "started background task bash-1", result
            said = text(result)[1:]
            while not any("behind" in line for line in said):
                said += text(await session.call_tool("task_list", {}))[1:]
            while not any(data["task_id"] == "bash-1" for data in logs):
                await asyncio.sleep(0.02)

            # Two calls at once; one is a wait.
            await session.call_tool(
                "bash", {"command": "sleep 0.3; echo late", "run_in_background": True}
            )
            waited, listed = await asyncio.gather(
                session.call_tool("task_output", {"task_id": "bash-2", "wait": True}),
                session.call_tool("list_agents", {}),
            )
            assert text(waited)[0].startswith("late\n"), waited
            assert text(listed)[0] == "(no subagents)", listed

            # A subagent, waited for.
            result = await session.call_tool(
                "subagent",
                {"description": "helper", "prompt": "Answer.", "run_in_background": False},
            )
            assert text(result)[0] == "CHILD ANSWER", result

            # What is wrong is told, and the session goes on.
            result = await session.call_tool("bash", {"command": 5})
            assert result.isError, result
            result = await session.call_tool("task_output", {"task_id": "bash-99"})
            assert result.isError, result
            try:
                await session.call_tool("no_such_tool", {})
                raise AssertionError("an unknown tool was called")
            except McpError as error:
                assert error.error.code == -32602, error

            # Something is left running: it ends with the connection.
            await session.call_tool("bash", {"command": "sleep 1000", "run_in_background": True})
    print("OK")


asyncio.run(main())
