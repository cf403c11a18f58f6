"""The rules for SQL statements. SQLite asks before it compiles a part of a statement."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

# Their values depend on the time, on chance, or on the connection.
VOLATILE: Final = frozenset(
    {
        "random", "randomblob", "date", "time", "datetime", "julianday", "strftime", "unixepoch",
        "timediff", "current_date", "current_time", "current_timestamp", "changes",
        "total_changes", "last_insert_rowid",
    }
)  # fmt: skip
# Functions that only compute. Others are refused: `load_extension` and `fts3_tokenizer` run native
# code at an address that the statement chooses, `fts5` takes native pointers, `optimize` changes a
# table, `sqlite_log` writes to the error log, and the shell's `writefile` and `edit` write files.
FUNCTIONS: Final = VOLATILE | frozenset(
    {
        # Core.
        "abs", "char", "coalesce", "concat", "concat_ws", "format", "glob", "hex", "if", "ifnull",
        "iif", "instr", "length", "like", "likelihood", "likely", "lower", "ltrim", "max", "min",
        "nullif", "octet_length", "printf", "quote", "replace", "round", "rtrim", "sign",
        "soundex", "sqlite_compileoption_get", "sqlite_compileoption_used", "sqlite_source_id",
        "sqlite_version", "substr", "substring", "subtype", "trim", "typeof", "unhex", "unicode",
        "unistr", "unistr_quote", "unlikely", "upper", "zeroblob",
        # Aggregates and windows.
        "avg", "count", "cume_dist", "dense_rank", "first_value", "group_concat", "lag",
        "last_value", "lead", "median", "nth_value", "ntile", "percent_rank", "percentile",
        "percentile_cont", "percentile_disc", "rank", "row_number", "string_agg", "sum", "total",
        # Mathematics.
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceiling", "cos",
        "cosh", "degrees", "exp", "floor", "ln", "log", "log10", "log2", "mod", "pi", "pow",
        "power", "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
        # JSON.
        "->", "->>", "json", "json_array", "json_array_insert", "json_array_length",
        "json_error_position", "json_extract", "json_group_array", "json_group_object",
        "json_insert", "json_object", "json_patch", "json_pretty", "json_quote", "json_remove",
        "json_replace", "json_set", "json_type", "json_valid", "jsonb", "jsonb_array",
        "jsonb_array_insert", "jsonb_extract", "jsonb_group_array", "jsonb_group_object",
        "jsonb_insert", "jsonb_object", "jsonb_patch", "jsonb_remove", "jsonb_replace",
        "jsonb_set",
        # Full-text search.
        "bm25", "fts5_get_locale", "fts5_insttoken", "fts5_locale", "fts5_source_id", "highlight",
        "match", "matchinfo", "offsets", "snippet",
    }
)  # fmt: skip
# SQLite calls them for ALTER TABLE, and refuses them in the text of a statement.
_INTERNAL: Final = ("sqlite_rename_", "sqlite_drop_")
# They describe tables. `database_list` is missing: it has the paths of files.
_DESCRIPTIONS: Final = (
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo",
    "foreign_key_list",
)  # fmt: skip
# With an argument, some of them would change the file. Full-text search reads two of them.
_FIGURES: Final = (
    "application_id", "data_version", "encoding", "freelist_count", "page_count", "page_size",
    "schema_version", "user_version",
)  # fmt: skip
_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def refusal(action: int, first: Any, second: Any, *, write: bool) -> str:
    """Return why a part of a statement is not allowed, "" if it is. action, first, second: as
    SQLite's authorizer gets them. write: whether the statement may change the database.
    """
    if action == sqlite3.SQLITE_FUNCTION:
        name = str(second).lower()
        if name in FUNCTIONS or (write and name.startswith(_INTERNAL)):
            return ""
        return f"the function {name} is not allowed"
    if action == sqlite3.SQLITE_PRAGMA:
        name = str(first).lower()
        if name in _DESCRIPTIONS or (name in _FIGURES and second is None):
            return ""
        known = ", ".join(sorted(_DESCRIPTIONS + _FIGURES))
        return f"PRAGMA {name} is not a read that is allowed; allowed are: {known}"
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return "ATTACH, DETACH or VACUUM is not a read or write of this database, and not allowed"
    # SQLite reports this when it opens a virtual table such as `json_each`. It refuses an UPDATE of
    # this table itself.
    opens = action == sqlite3.SQLITE_UPDATE and first == "sqlite_master"
    if write or opens or action in _READS:
        return ""
    return "the statement is not a read: only operators with 'write: true' may change the database"
