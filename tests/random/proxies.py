# SPDX-License-Identifier: Apache-2.0
"""The proxies between client and server: `start_proxy(name, directory, address)` is a Server of tests/e2e with a port.

nginx keeps connections to the server, nginx-close does not; nginx-unbuffered hands on each piece of a body as it comes."""
import os

from servers import Server, free_port

NGINX = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log stderr crit; user root;
events {{}}
http {{
    access_log off; client_max_body_size 0; proxy_next_upstream off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    upstream app {{ server {upstream}; {keep} }}
    server {{ listen 127.0.0.1:{port} backlog=256; location / {{ {how} proxy_pass http://app; }} }}
}}
"""
KEEP = "proxy_http_version 1.1; proxy_set_header Connection '';"
NGINX_HOW = {"nginx": KEEP, "nginx-close": "", "nginx-unbuffered": KEEP + " proxy_request_buffering off; proxy_buffering off;"}
HAPROXY = """
global
    maxconn 100
defaults
    mode http
    retries 0
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend client
    bind 127.0.0.1:{port}
    default_backend app
backend app
    server app {upstream}
"""


def start_proxy(name, directory, address):
    """address: a port or the path of a unix socket, as text."""
    port, path = free_port(), os.path.join(directory, name + ".conf")
    unix = address.startswith("/")
    if name == "haproxy":
        text = HAPROXY.format(port=port, upstream=f"unix@{address}" if unix else f"127.0.0.1:{address}")
        argv = ["/usr/sbin/haproxy", "-f", path, "-db"]
    else:
        text = NGINX.format(dir=directory, port=port, how=NGINX_HOW[name], keep="keepalive 4;" if NGINX_HOW[name] else "",
                            upstream=f"unix:{address}" if unix else f"127.0.0.1:{address}")
        argv = ["/usr/sbin/nginx", "-e", "stderr", "-c", path, "-p", directory]
    with open(path, "w") as f:
        f.write(text)
    proxy = Server(argv)
    proxy.port = port
    return proxy
