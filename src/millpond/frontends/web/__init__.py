"""The HTTP interface: endpoints that can be used with curl."""

from millpond.frontends.web.server import WebServer
from millpond.frontends.web.site import NotReady, WebServices

__all__ = ["NotReady", "WebServer", "WebServices"]
