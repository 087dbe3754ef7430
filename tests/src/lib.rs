//! Cross-crate tests of the Offshoot workspace live under `tests/`.
