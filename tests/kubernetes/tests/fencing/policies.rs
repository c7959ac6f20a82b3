//! The manifests: applied by kubectl, again and again.

use ringfence_kube::policy::Carrier;

use crate::stand::{CURRENT, Stand};
use crate::verdict::Verdict;
use crate::writer::Op;

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_write_is_refused_and_a_current_one_is_done() {
    for carrier in Carrier::ALL {
        let Some(stand) = Stand::start(carrier, CURRENT).await else {
            return;
        };
        let current = stand.fence(CURRENT);
        let stale = stand.fence(CURRENT - 1);
        let (current, stale) = (stand.writer(Some(&current)), stand.writer(Some(&stale)));
        assert_eq!(
            current.write(Op::Create, "prices").await,
            Ok(Verdict::Admitted)
        );
        assert_eq!(
            stale.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Stale)
        );
        assert_eq!(
            current.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Admitted)
        );
        let nothing = stand.writer(None);
        assert_ne!(
            nothing.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Admitted)
        );

        let again = stand.kubectl("apply", &stand.fencing.manifests());
        assert!(again.lines().count() > 10, "{again}");
        let changed = again.lines().find(|line| !line.ends_with(" unchanged"));
        assert_eq!(changed, None);
    }
}
