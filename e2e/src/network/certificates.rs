//! The certificates of one control plane. All components trust one authority, and a certificate names its user.

use crate::error::{FileContext, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Signs every certificate of one control plane and keeps them in its directory.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub(crate) struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "winpool-e2e");
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
            directory: directory.to_owned(),
        };
        write(&authority.certificate(), &authority.issuer.pem())?;
        Ok(authority)
    }

    /// The file with the authority's own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// The authority's own certificate as a client needs it.
    pub(crate) fn root(&self) -> Vec<Vec<u8>> {
        vec![self.issuer.der().to_vec()]
    }

    /// A certificate for a server on 127.0.0.1, with every name under which pods know the API server.
    pub(crate) fn serving(&self) -> Result<ClientCertificate> {
        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("serving", &params)
    }

    /// A certificate for a component that is `user`, a member of `group` if one is given.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<ClientCertificate> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.issue(&user.replace(':', "-"), &params)
    }

    /// The key pair that signs service account tokens, as (private, public).
    pub(crate) fn service_account_keys(&self) -> Result<(PathBuf, PathBuf)> {
        let (private, public) = (self.directory.join("sa.key"), self.directory.join("sa.pub"));
        let key = KeyPair::generate()?;
        write(&private, &key.serialize_pem())?;
        write(&public, &key.public_key_pem())?;
        Ok((private, public))
    }

    fn issue(&self, name: &str, params: &CertificateParams) -> Result<ClientCertificate> {
        let key = KeyPair::generate()?;
        let certificate: Certificate = params.signed_by(&key, &self.issuer)?;
        let identity = ClientCertificate {
            certificate: self.directory.join(format!("{name}.crt")),
            key: self.directory.join(format!("{name}.key")),
        };
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// Only its owner can read the directory, so the files need no mode of their own.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).when("write", path)
}

/// Returns the configuration of a server with this certificate.
pub(crate) fn tls(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let unreadable = |error: tokio_rustls::rustls::pki_types::pem::Error| std::io::Error::other(error);
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(unreadable);
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable);
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(chain.when("read", certificate)?, private.when("read", key)?);
    config.map_err(std::io::Error::other).when("serve with", certificate)
}
