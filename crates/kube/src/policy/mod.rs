//! Policies by which the API server itself refuses the writes of stale holders: printed, never
//! applied from here.
//!
//! ```text
//!  a write, with LEASE#TOKEN     stamp   its token becomes the object's annotation
//!            │                   mark    is it at least the annotation stored before?   the guarantee
//!            └──▶ API server ──▶ floor   is it at least the newest grant's token?       best effort
//! ```
//!
//! Without mutation, for Kubernetes below 1.36, the client writes the annotation that `stamp` would.
//!
//! A write carries the whole fence, `LEASE#TOKEN`, and not the token alone: tokens grow over all
//! leases, so a newer one of another lease is greater than any of this one.
//! [`Carrier`] says where it stands.

mod carrier;
mod fencing;
mod floor;
mod judging;
mod keeping;
mod lowering;
mod manifest;
mod mark;
mod pods;
mod refusal;
mod rights;
mod stamping;
mod subject;
mod text;

pub use carrier::{
    Carrier, FENCE_EXTRA, FIELD_MANAGER_BYTES_MAX, STAMP, STAMP_NUMBER_MAX, UnknownCarrier,
};
pub use fencing::{
    Fencing, FencingSpec, InvalidFencing, NAMESPACES_MAX, RESOURCES_MAX, WithoutLease,
};
pub use lowering::LOWER;
pub use mark::INHERITED;
pub use refusal::{REFUSAL, Refusal, Refuser, STALE};
pub use subject::{InvalidResource, InvalidServiceAccount, Resource, ServiceAccount};

impl Fencing {
    /// The manifests, as one YAML stream with comments. Equal wishes make equal texts.
    #[must_use]
    pub fn manifests(&self) -> String {
        let mut yaml = self.foreword();
        if self.keeper {
            yaml.push_str(&floor::keeper());
        }
        yaml.push_str(&self.floor_object());
        yaml.push_str(&self.rights());
        yaml.push_str(&self.canary());
        if self.mutation {
            yaml.push_str(&self.stamp());
        }
        yaml.push_str(&self.keep());
        yaml.push_str(&self.lower());
        yaml.push_str(&self.bind());
        yaml.push_str(&self.mark());
        yaml.push_str(&self.floor());
        yaml
    }

    fn foreword(&self) -> String {
        let keeperless = match self.keeper {
            true => format!("{} --without-keeper", self.command()),
            false => self.command(),
        };
        let since = match self.mutation {
            true => "Needs Kubernetes 1.36.",
            false => "Needs Kubernetes 1.30, and a client that writes the mark beside its fence.",
        };
        let lines = [
            "Printed by".to_owned(),
            format!("  {}", self.command()),
            format!(
                "Writes of {} are judged by the lease {}.",
                self.account.user(),
                self.lease
            ),
            format!("{since} To apply it, again and again if you like:"),
            format!("  {} | kubectl apply -f -", self.command()),
            "To see that a stale write is refused, now and from now on:".to_owned(),
            format!("  {}", self.canary_command()),
            "To take it away, and leave what other leases need:".to_owned(),
            format!("  {keeperless} | kubectl delete -f -"),
        ];
        let lines = lines.iter();
        lines.map(|line| format!("# {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests;
