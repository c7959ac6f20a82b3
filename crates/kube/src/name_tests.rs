use super::*;

fn lease(name: &str) -> LeaseName {
    LeaseName::parse(name).unwrap()
}

fn everywhere() -> Naming {
    Naming::new(PREFIX, None).unwrap()
}

fn object(namespace: &str, name: &str) -> ObjectName {
    ObjectName {
        namespace: namespace.into(),
        name: name.into(),
    }
}

#[test]
fn a_lease_and_its_object_name_each_other() {
    let naming = everywhere();
    for (namespace, name) in [
        ("default", "leader"),
        ("team-7", "a.b.c"),
        ("0", "0"),
        (&*"n".repeat(63), &*"x".repeat(180)),
    ] {
        let name_of = lease(&format!("k8s/{namespace}/{name}"));
        let object = object(namespace, name);
        assert_eq!(naming.place(&name_of), Mapping::Object(object.clone()));
        assert_eq!(naming.lease(&object), Some(name_of));
    }
}

#[test]
fn what_kubernetes_cannot_carry_is_told_and_not_mangled() {
    let naming = everywhere();
    let long = format!("k8s/{}/x", "n".repeat(64));
    for (name, unfit) in [
        ("k8s/only", InvalidObjectName::Segments),
        ("k8s/a/b/c", InvalidObjectName::Segments),
        (
            "k8s/Team/x",
            InvalidObjectName::Namespace("Team".to_owned()),
        ),
        ("k8s/a.b/x", InvalidObjectName::Namespace("a.b".to_owned())),
        ("k8s/-a/x", InvalidObjectName::Namespace("-a".to_owned())),
        (&long, InvalidObjectName::Namespace("n".repeat(64))),
        ("k8s/a/Leader", InvalidObjectName::Name("Leader".to_owned())),
        ("k8s/a/a_b", InvalidObjectName::Name("a_b".to_owned())),
        ("k8s/a/a..b", InvalidObjectName::Name("a..b".to_owned())),
        ("k8s/a/a.", InvalidObjectName::Name("a.".to_owned())),
        ("k8s/a/-b", InvalidObjectName::Name("-b".to_owned())),
        (
            "k8s/a/b@c:d~e",
            InvalidObjectName::Name("b@c:d~e".to_owned()),
        ),
    ] {
        assert_eq!(
            naming.place(&lease(name)),
            Mapping::InvalidObjectName(unfit),
            "{name}"
        );
    }
}

#[test]
fn the_leases_of_kubernetes_itself_are_out_of_reach() {
    for namespace in RESERVED_NAMESPACES {
        let unfit = InvalidObjectName::Reserved(namespace.to_owned());
        let name = lease(&format!("k8s/{namespace}/node-1"));
        assert_eq!(
            everywhere().place(&name),
            Mapping::InvalidObjectName(unfit.clone())
        );
        assert_eq!(
            Naming::new(PREFIX, Some(namespace)),
            Err(InvalidNaming::Namespace(unfit))
        );
    }
}

#[test]
fn other_leases_are_none_of_its_business() {
    for name in ["bank/interest", "k8s", "k8sx/a/b", "x/k8s/a/b"] {
        assert_eq!(
            everywhere().place(&lease(name)),
            Mapping::Elsewhere,
            "{name}"
        );
    }
    let one = Naming::new("mirror/here", Some("team")).unwrap();
    assert_eq!(one.leases(), "mirror/here/team/");
    for name in ["mirror/here/other/x", "mirror/here/Odd", "k8s/team/x"] {
        assert_eq!(one.place(&lease(name)), Mapping::Elsewhere, "{name}");
    }
    let mine = object("team", "x");
    assert_eq!(
        one.place(&lease("mirror/here/team/x")),
        Mapping::Object(mine.clone())
    );
    assert_eq!(one.lease(&mine), Some(lease("mirror/here/team/x")));
    assert_eq!(one.lease(&object("other", "x")), None);
}

#[test]
fn a_prefix_must_be_able_to_begin_a_name() {
    for prefix in ["", "/", "a b", "a//b", ".."] {
        let refused = Naming::new(prefix, None);
        assert_eq!(refused, Err(InvalidNaming::Prefix(prefix.to_owned())));
    }
}

#[test]
fn a_lease_and_its_floor_name_each_other() {
    let naming = everywhere().with_floors_in("locks").unwrap();
    for (namespace, name, floor) in [
        ("demo", "leader", "floor.demo.leader"),
        ("a", "b.c", "floor.a.b.c"),
        ("a-b", "c", "floor.a-b.c"),
    ] {
        let found = naming.floor(&object(namespace, name)).unwrap();
        assert_eq!(found, object("locks", floor));
        assert!(naming.is_floor(&found));
        let of = lease(&format!("k8s/{namespace}/{name}"));
        assert_eq!(naming.lease(&found), Some(of));
    }
    for other in [
        "demo.leader",
        "floor.demo",
        "floor.locks.x",
        "floor.kube-system.x",
    ] {
        assert_eq!(naming.lease(&object("locks", other)), None, "{other}");
    }
    let long = "x".repeat(NAME_BYTES_MAX);
    assert_eq!(naming.floor(&object("a", &long)), None);
}

/// Else a client could write any floor: by acquiring a lease that is shown where floors are.
#[test]
fn no_lease_is_shown_where_floors_are() {
    let forged = lease("k8s/ringfence/floor.demo.leader");
    let unfit = InvalidObjectName::Floors("ringfence".to_owned());
    assert_eq!(
        everywhere().place(&forged),
        Mapping::InvalidObjectName(unfit)
    );
    let one = Naming::new(PREFIX, Some("locks")).unwrap();
    let refused = one.clone().with_floors_in("locks");
    assert!(matches!(refused, Err(InvalidNaming::Floors { .. })));
    assert_eq!(one.namespaces(), Some(["locks", "ringfence"]));
    assert_eq!(everywhere().namespaces(), None);
}
