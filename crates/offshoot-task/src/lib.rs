//! A registry of background tasks: ids, status, ownership, output, waits and settlement.
