//! Subagents: the provider seam, one-shot runs, continuable children, settlement and limits.
