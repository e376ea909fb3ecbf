"""The faces of the log: each speaks one protocol, and translates; what a topic is, is decided below."""
