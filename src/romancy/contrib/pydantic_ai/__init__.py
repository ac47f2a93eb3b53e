"""Agents of pydantic-ai inside workflows: model requests, tools and MCP servers are recorded steps.

>>> agent = Agent("openai:gpt-5", name="support", toolsets=[tools], capabilities=[RomancyDurability()])
>>>
>>> @workflow
... async def support(ctx: WorkflowContext, prompt: str) -> str:
...     return (await agent.run(prompt)).output

Outside a workflow the agent runs as usual. Needs `pip install "romancy[pydantic-ai]"`.

    durability.py  the capability that you give to an agent
    operations.py  runs pydantic-ai's operations as steps: their names, their retries
    visible.py     what the viewer shows as the input of a step
    approvals.py   asks people whether tools may be called
"""

from __future__ import annotations

try:
    import pydantic_ai.durable_exec as _needed  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    raise ImportError('romancy.contrib.pydantic_ai needs pydantic-ai: pip install "romancy[pydantic-ai]"') from error

from romancy.contrib.pydantic_ai.approvals import ToolApproval, approve_tools
from romancy.contrib.pydantic_ai.durability import RomancyDurability
from romancy.contrib.pydantic_ai.operations import StepOptions

__all__ = ["RomancyDurability", "StepOptions", "ToolApproval", "approve_tools"]
