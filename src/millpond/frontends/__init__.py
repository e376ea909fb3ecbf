"""The interfaces to the log. Each one implements a protocol and only translates; the layers below define behaviour."""
