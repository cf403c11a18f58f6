"""Variables that earlier versions read, and what replaces each of them."""

from __future__ import annotations

from typing import Final

_FILE: Final = "the [default] table of WEFT_KEYS_FILE has"

REMOVED: Final = {
    # Another setting replaces it.
    "WEFT_TENANTS_FILE": "use WEFT_KEYS_FILE: [tenants.NAME] is [keys.NAME], and key_digest is "
    "digest. The gateway accepts the keys of this file and of WEFT_API_KEYS only",
    "WEFT_REQUESTS_PER_MINUTE": f"{_FILE} requests_per_minute",
    "WEFT_TOKENS_PER_MINUTE": f"{_FILE} tokens_per_minute",
    "WEFT_CALLS_IN_FLIGHT": f"{_FILE} calls_in_flight",
    "WEFT_REDIS_PREFIX": "name a database of its own in WEFT_REDIS_URL, as in redis://HOST/1",
    "WEFT_ADMIN_HOSTS": "set WEFT_ADMIN_KEY; with it, every host name is accepted",
    "WEFT_BODY_BYTES": "the gateway holds 64 times WEFT_MAX_BODY_BYTES of bodies",
    "WEFT_BALANCER_ALPHA": "it is 0 until `weft tune` or POST /weft/policy sets it",
    "WEFT_TUNING": "the command `weft tune` replaces it",
    "WEFT_TRACEPARENT_PROGRAMS": "name programs with the header x-weft-program",
    # Features that are always on.
    "WEFT_LINEAGE": "lineage is always on; a call with a program's name does not use it",
    "WEFT_TAG_PROMPTS": "prompts are always tagged; tags change no answer",
    "WEFT_AUTO_PREFILL": "prefills happen where measurements show a benefit",
    # Runs over HTTP.
    "WEFT_WORKFLOW_CONNECTIONS": "WEFT_RUN_DATABASES replaces it, read-only",
    "WEFT_WORKFLOW_WRITABLE": "runs read the databases of WEFT_RUN_DATABASES only",
    "WEFT_WORKFLOW_HOSTS": "WEFT_RUN_HOSTS replaces it",
    "WEFT_WORKFLOWS_PER_TENANT": "a run carries its workflow; none are stored",
    **dict.fromkeys(
        (
            "WEFT_WORKFLOW_BYTES",
            "WEFT_WORKFLOW_INPUT_BYTES",
            "WEFT_WORKFLOW_MEMORY_BYTES",
            "WEFT_WORKFLOW_ROWS",
            "WEFT_WORKFLOW_RUNS",
            "WEFT_WORKFLOW_RUNS_PER_TENANT",
            "WEFT_WORKFLOW_STALL_S",
        ),
        "limits of runs are fixed (docs/guides/batch-workflows.md)",
    ),
    # Fixed values.
    "WEFT_ADMISSION_WAIT_S": "it is 45; WEFT_ADMISSION=off turns these waits off",
    "WEFT_ANSWER_KEEP_S": "it is 86400",
    "WEFT_ATTEMPTS_PER_CALL": "it is 3",
    "WEFT_BATCHES_PER_TENANT": "it is 100",
    "WEFT_BATCH_CALLS": "it is 32; engines with the plugin report their slots",
    "WEFT_BODY_TIMEOUT_S": "it is 120, and begins again while at least 16 KiB per second arrive",
    "WEFT_CALL_LEASE_S": "it is 120",
    "WEFT_CONNECT_TIMEOUT_S": "it is 5",
    "WEFT_FILES_PER_TENANT": "it is 10000",
    "WEFT_FILE_BYTES": "it is 209715200; WEFT_FILE_BYTES_PER_TENANT limits all files of a tenant",
    "WEFT_FILE_KEEP_S": "it is 2592000; expires_after of a file shortens it",
    "WEFT_FIRST_BYTE_TIMEOUT_S": "it is 900; longer answers can be streamed",
    "WEFT_HEAD_TIMEOUT_S": "it is 20",
    "WEFT_HEALTH_INTERVAL_S": "it is 2",
    "WEFT_IDLE_TIMEOUT_S": "it is 120",
    "WEFT_KEEP_ALIVE_S": "it is 75",
    "WEFT_LISTENERS": "it is 4096",
    "WEFT_LISTENERS_PER_SESSION": "it is 64",
    "WEFT_LISTENERS_PER_TENANT": "it is 256",
    "WEFT_LOCALITY_THRESHOLD_TOKENS": "it is 2048",
    "WEFT_LOST_AFTER_S": "it is 5; drain a replica through /weft/replicas before it stops",
    "WEFT_MAX_ANSWER_BYTES": "it is 268435456; longer answers can be streamed",
    "WEFT_MAX_CONNECTIONS": "it is 4096, or less where the limit of open files allows less",
    "WEFT_MAX_CONNECTIONS_PER_KEY": "it is 1024; calls_in_flight in WEFT_KEYS_FILE limits calls",
    "WEFT_MAX_HEADERS": "it is 128",
    "WEFT_MAX_HEAD_BYTES": "it is 65536",
    "WEFT_MAX_PROGRAMS_PER_TENANT": "it is 100000",
    "WEFT_PREFILLS": "it is 8192",
    "WEFT_PREFILLS_PER_TENANT": "it is 256",
    "WEFT_READ_BODY_BYTES": "it is 4194304",
    "WEFT_READ_BODY_MESSAGES": "it is 8192",
    "WEFT_RECEIPTS": "it is 4096",
    "WEFT_RECEIPTS_AGE_S": "it is 3600",
    "WEFT_REDIS_TIMEOUT_S": "it is 1",
    "WEFT_REPLICA_CACHE_TOKENS": "it is 131072, for replicas that do not report the size",
    "WEFT_RETRY_AFTER_S": "it is 2",
    "WEFT_RETRY_BUDGET": "it is 0.1",
    "WEFT_SEND_TIMEOUT_S": "it is 30",
    "WEFT_WEBSOCKETS_PER_TENANT": "it is 256",
    "WEFT_WEBSOCKET_IDLE_S": "it is 900",
    "WEFT_WEBSOCKET_MESSAGE_BYTES": "it is 8388608",
}
"""By name, a line for the operator. A value of one of these stops the start."""
