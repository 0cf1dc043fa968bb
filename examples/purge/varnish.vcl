# Varnish 6 or later in front of Hotrow, purged by surrogate keys: docs/purging.md.
# Needs the module xkey (Debian: varnish-modules).
vcl 4.1;

import xkey;

backend hotrow {
  .host = "10.0.0.1";
  .port = "8080";
}

# Addresses of your Hotrow instances.
acl purgers {
  "10.0.0.1";
}

sub vcl_recv {
  if (req.method == "PURGE") {
    if (client.ip !~ purgers) {
      return (synth(403, "Not from here"));
    }
    if (!req.http.xkey-purge) {
      return (synth(400, "No xkey-purge"));
    }
    return (synth(200, "Purged " + xkey.purge(req.http.xkey-purge)));
  }
}

sub vcl_backend_response {
  if (beresp.http.surrogate-key) {
    # Where the module looks for keys.
    set beresp.http.xkey = beresp.http.surrogate-key;
    set beresp.grace = 0s;
  } else {
    # No purge would find it. Requests for it do not wait for each other.
    set beresp.uncacheable = true;
    set beresp.ttl = 120s;
  }
}

sub vcl_deliver {
  unset resp.http.xkey;
  unset resp.http.surrogate-key;
}
