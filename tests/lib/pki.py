"""pki.py: a CA and its certificates, made by openssl, for cells under TLS.

`Pki(dir)` has a CA "ca"; cert(name) makes name.pem and name.key; revoke(name) puts it on the list ca.crl. Files are replaced at once, by rename, as those who
renew certificates do. use(name) says to every client that this process starts who it is: etcdctl, holdfastctl, curl and our own clients; other people's clients
may be somebody else.
"""
import os
import pathlib
import ssl
import subprocess

_CONFIG = """
[ca]
default_ca = own
[own]
database = {dir}/index
crlnumber = {dir}/crlnumber
default_md = sha256
default_crl_days = 30
"""


def _openssl(*args, **kwargs):
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, f"openssl {' '.join(map(str, args))}: {done.stderr}"
    return done.stdout


class Pki:
    def __init__(self, folder, name="ca"):
        self.dir = pathlib.Path(folder) / name
        self.dir.mkdir(parents=True)
        self.user = None
        (self.dir / "index").touch()
        (self.dir / "crlnumber").write_text("01\n")
        (self.dir / "openssl.cnf").write_text(_CONFIG.format(dir=self.dir))
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"),
                 "-subj", f"/CN={name}", "-days", "30", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self.crl()

    def path(self, name):
        return self.dir / name

    def cert(self, name, cn=None, names="DNS:localhost,IP:127.0.0.1", days=30):
        """days negative: it has expired."""
        csr = _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(f"{name}.key.new"), "-subj", f"/CN={cn or name}")
        extensions = self.path(f"{name}.ext")
        extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("x509", "-req", "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", days, "-extfile", extensions,
                 "-out", self.path(f"{name}.pem.new"), input=csr)
        for end in ("pem", "key"):
            self.path(f"{name}.{end}.new").replace(self.path(f"{name}.{end}"))
        return self

    def crl(self):
        _openssl("ca", "-config", self.path("openssl.cnf"), "-gencrl", "-cert", self.path("ca.pem"), "-keyfile", self.path("ca.key"), "-out", self.path("ca.crl.new"))
        self.path("ca.crl.new").replace(self.path("ca.crl"))

    def revoke(self, name):
        _openssl("ca", "-config", self.path("openssl.cnf"), "-revoke", self.path(f"{name}.pem"), "-cert", self.path("ca.pem"), "-keyfile", self.path("ca.key"))
        self.crl()

    def replace(self, name, content):
        new = self.path(f"{name}.new")
        new.write_bytes(content)
        new.replace(self.path(name))

    def use(self, name, clients=None):
        self.user = name
        for tool, ca, user in (("ETCDCTL", "CACERT", name), ("HOLDFAST", "CACERT", name), ("TEST_TLS", "CA", clients or name)):
            os.environ[f"{tool}_{ca}"] = str(self.path("ca.pem"))
            os.environ[f"{tool}_CERT"] = str(self.path(f"{user}.pem"))
            os.environ[f"{tool}_KEY"] = str(self.path(f"{user}.key"))
        self.path(".curlrc").write_text(f'cacert = "{self.path("ca.pem")}"\ncert = "{self.path(f"{name}.pem")}"\nkey = "{self.path(f"{name}.key")}"\n')
        os.environ["CURL_HOME"] = str(self.dir)
        return self

    def context(self, name=None, alpn=()):
        """For clients; name None: without a certificate."""
        c = ssl.create_default_context(cafile=str(self.path("ca.pem")))
        if name:
            c.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        if alpn:
            c.set_alpn_protocols(list(alpn))
        return c

    def channel_credentials(self):
        import grpc
        read = [self.path(n).read_bytes() for n in ("ca.pem", f"{self.user}.key", f"{self.user}.pem")]
        return grpc.ssl_channel_credentials(*read)

    def signs_tokens(self, server="server"):
        _openssl("pkey", "-in", self.path(f"{server}.key"), "-pubout", "-out", self.path("tokens.pub"))
        return ["--auth-token", f"jwt,pub-key={self.path('tokens.pub')},priv-key={self.path(f'{server}.key')},sign-method=ES256,ttl=1h"]

    def flags(self, server="server", peer="peer"):
        """Mutual TLS for clients and peers, with the list of what was revoked."""
        return ["--cert-file", self.path(f"{server}.pem"), "--key-file", self.path(f"{server}.key"), "--client-cert-auth", "--trusted-ca-file", self.path("ca.pem"),
                "--client-crl-file", self.path("ca.crl"), "--peer-cert-file", self.path(f"{peer}.pem"), "--peer-key-file", self.path(f"{peer}.key"),
                "--peer-client-cert-auth", "--peer-trusted-ca-file", self.path("ca.pem"), "--peer-crl-file", self.path("ca.crl")]
