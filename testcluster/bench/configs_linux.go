package main

// The three configurations do the same work: one listener, one backend,
// connections kept and reused on both sides, no logs, one thread. LISTEN,
// BACKEND, DIR, ROOM (connections from clients) and SECURE (what the listener
// needs for TLS 1.3, or nothing) are replaced.

const starlingConfig = `
admin: {address: "127.0.0.1:0"}
listeners: [{address: "127.0.0.1:0"SECURE}]
pools: {bench: {backends: ["http://BACKEND"], health: {enabled: false}, backend: {engine: none}}}
`

// Event streams are not buffered, as nginx's manual has it for them. Bodies
// are, in memory only: of no buffering and buffers of 4, 16, 32 and 64 KiB, 16
// were within a few percent of the best at 64 KiB and by far the best at 1 MiB.
const nginxConfig = `
daemon off; master_process off; pid DIR/nginx.pid; error_log stderr error;
worker_rlimit_nofile 20000;
events { worker_connections 20000; }
http {
  access_log off; server_tokens off;
  keepalive_timeout 10m; keepalive_requests 1000000000;
  client_body_temp_path DIR/n1; proxy_temp_path DIR/n2; fastcgi_temp_path DIR/n3; uwsgi_temp_path DIR/n4; scgi_temp_path DIR/n5;
  upstream backend { server BACKEND; keepalive 1024; keepalive_requests 1000000000; keepalive_timeout 10m; }
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
  proxy_read_timeout 1h; proxy_max_temp_file_size 0;
  proxy_buffers 8 16k; proxy_buffer_size 16k; proxy_busy_buffers_size 32k;
  server {
    listen LISTEN backlog=4096SECURE;
    location / { proxy_pass http://backend; }
    location /events { proxy_pass http://backend; proxy_buffering off; }
  }
}
`

// http-no-delay: without it an event waits up to 200 ms to share a packet.
// abortonclose: without it a client that left before the head is not noticed.
const haproxyConfig = `
global
  nbthread 1
  maxconn ROOM
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option http-no-delay
  option abortonclose
  http-reuse always
frontend in
  bind LISTEN backlog 4096SECURE
  default_backend out
backend out
  server s BACKEND
`

const (
	starlingTLS = `, tls: {cert_file: "DIR/cert.pem", key_file: "DIR/key.pem"}`
	nginxTLS    = ` ssl; ssl_protocols TLSv1.3; ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/key.pem`
	haproxyTLS  = ` ssl crt DIR/both.pem ssl-min-ver TLSv1.3`
)
