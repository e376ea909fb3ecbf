"""Generated from `proto/` by `make stubs`; nothing here is written by hand."""
