"""The HTTP face: the endpoints anybody can reach with curl."""

from millpond.frontends.web.server import WebServer, WebServices

__all__ = ["WebServer", "WebServices"]
