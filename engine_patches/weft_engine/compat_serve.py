"""Adapter to vLLM's argument parser, engine and API server, for `weft_engine.server`.

This module imports most of vLLM, so it is imported only when a server starts.
"""

from __future__ import annotations

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.entry import build_and_serve
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.launchers.launcher import setup_server
from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM

__all__ = [
    "AsyncEngineArgs",
    "AsyncLLM",
    "FlexibleArgumentParser",
    "UsageContext",
    "build_and_serve",
    "cli_env_setup",
    "make_arg_parser",
    "setup_server",
    "validate_parsed_serve_args",
]
