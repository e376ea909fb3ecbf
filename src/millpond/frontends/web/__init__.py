"""The HTTP face: the endpoints anybody can reach with curl."""

from millpond.frontends.web.server import WebServer
from millpond.frontends.web.site import NotReady, WebServices

__all__ = ["NotReady", "WebServer", "WebServices"]
