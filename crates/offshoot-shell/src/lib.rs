//! Shell commands as background tasks: process groups, streamed output, graceful stop.
