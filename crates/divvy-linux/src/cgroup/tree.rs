//! The cgroups of one run: a root named after its owner, and a leaf for each client.
//!
//! Whoever makes a tree has entered it in the table of held processes before ([`super::raw`] undoes it from there), so
//! that no moment is left in which a leaf could stay behind, frozen or not.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use divvy_policy::CpuLimit;
use rustix::io::Errno;

use super::brake::Brake;
use super::ceiling::Ceilings;
use super::choose::Means;
use super::disks::Disk;
use super::files::{Files, Real};
use super::leaf::{Hold, Leaf};
use super::migrate::Migrator;
use super::raw::{self, FixedPath, SwitchedOn, TreeImage, Undone};
use super::rights::{Given, Offers};
use super::room::{CPU_MAX, Controller, CpuMax, Limit, Spell as _};
use super::survey::{Enable, FIX, Ground};
use super::upkeep::Upkeep;
use super::users::{Due, Stale, UserCgroup};
use super::weights::Off;
use crate::guard::{Table, TreeCells};
use crate::{CpuMask, Error, Pid, Result, StartTime};

/// What a tree is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Leaves are frozen and thawed.
    Freeze,
    /// Leaves have weights, one for each client in order, are put behind all others and back, and, where `freezes`, are frozen
    /// and thawed; else signals hold who is in them, or another tree does.
    Idle { weights: Vec<u64>, freezes: bool },
    /// Leaves have weights, one for each client in order.
    Weigh(Vec<u64>),
    /// Leaves have weights that change, are frozen for a pause, and have rights to memory and disks.
    Keep,
}

impl Purpose {
    /// Whether what leaves have changes with the clients' shares, and with their rights to memory and disks.
    pub(super) const fn keeps(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// Whether leaves need no controller: the kernel divides nothing among them.
    const fn is_apart(&self) -> bool {
        matches!(self, Self::Freeze)
    }
}

/// So many times what others weigh. Twice is enough for the kernel to leave a CPU alone on which it runs alone, in measurements; more
/// costs the others where strangers are.
const PREFERRED: u64 = 4;

/// A tree that is ours. Dropping it takes it apart.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) root: PathBuf,
    pub(super) ground: Ground,
    pub(super) purpose: Purpose,
    inode: u64,
    /// What is on for the children of the ground because of us.
    enabled: SwitchedOn,
    pub(super) files: Rc<dyn Files>,
    made: bool,
    /// What of memory, disks and sets of CPUs can be had for the leaves.
    pub(super) offers: Offers,
    /// What the root was given for all of them.
    pub(super) given: Given,
    /// The cgroups around the leaves of one user each.
    pub(super) users: BTreeMap<u32, UserCgroup>,
    /// Where leaves are to have something else than was written.
    pub(super) stale: Stale,
    /// How far off the worst weights are of what is beside each other in the root.
    pub(super) off: Off,
    /// The machine's disks when they were last looked at.
    pub(super) disks: Vec<Disk>,
    /// Others have come since limits of disks were last written.
    pub(super) disks_came: bool,
    /// For how many CPUs it was made.
    pub(super) cpus: usize,
    /// The CPUs that are divided, where that was said.
    pub(super) divided: Option<CpuMask>,
    /// Why leaves are not kept to these, where the kernel refused that.
    pub(super) not_narrowed: Option<String>,
    pub(super) upkeep: Upkeep,
    /// The tree that freezes, where that is in another hierarchy: each leaf has one there, too.
    second: Option<Box<Tree>>,
    /// Who moves those whom we may not.
    pub(super) migrator: Option<Migrator>,
}

/// The error for a cgroup's file; a lacking permission names the fix that holds for cgroups.
pub(super) fn failed(operation: &'static str, path: &Path, cause: Errno) -> Error {
    let object = path.display().to_string();
    match cause {
        Errno::PERM | Errno::ACCESS | Errno::ROFS => Error::Permission { operation, object, fix: FIX, cause },
        _ => Error::System { operation, object, cause },
    }
}

impl Tree {
    /// The tree for `means`, noted in the owner's table and then made; `None` where none is needed. Clients are due what `cpus`
    /// CPUs are, and where rights are kept they run on those `divided`, where these are not all, if the
    /// kernel has cpusets for that.
    ///
    /// # Errors
    /// As [`Tree::make`]; nothing is left then.
    pub(crate) fn grow(
        means: Means,
        table: &Table,
        cpus: usize,
        divided: Option<CpuMask>,
    ) -> Result<Option<Self>> {
        let mut apart = None;
        let (ground, purpose) = match means {
            Means::Signals => return Ok(None),
            Means::Freezer(ground) => (ground, Purpose::Freeze),
            Means::Idle { ground, weights, freezer: second } => {
                let freezes = second.is_some();
                let same = ground.knob == super::Knob::Weight;
                // The kernel gives each CPU so much of our weight as those have who run there, of all of us: beside strangers, whoever
                // has a small share, and a CPU all the same, would get a small part of that.
                let weights = if cpus > 1 { Vec::new() } else { weights };
                apart = second.filter(|_| !same);
                (ground, Purpose::Idle { weights, freezes: freezes && same })
            }
            Means::Weights(ground, weights) => (ground, Purpose::Weigh(weights)),
            Means::Rights(ground) => (ground, Purpose::Keep),
        };
        let (pid, start) = table.owner_identity();
        let view = table.view();
        let mut tree = Self::plan(ground, purpose, pid, start);
        tree.divided = divided;
        tree.make_noted(view.tree(), cpus)?;
        if let Some(ground) = apart {
            let mut second = Self::plan(ground, Purpose::Freeze, pid, start);
            // Where it cannot be had, signals hold, and perf events or clocks count.
            if second.make_noted(view.second_tree(), cpus).is_ok() {
                tree.second = Some(Box::new(second));
            }
        }
        Ok(Some(tree))
    }

    /// Makes the tree, noted in `cells` before.
    fn make_noted<const PATH: usize>(&mut self, cells: &TreeCells<PATH>, cpus: usize) -> Result<()> {
        let note =
            |tree: &Self| cells.note(&tree.image()?).map_err(|e| failed("note in the table", &tree.root, e));
        note(self)?;
        let made = self.make(cpus).and_then(|()| note(self));
        if made.is_err() && self.dissolve().is_ok() {
            cells.erase();
        }
        made
    }

    /// Takes it apart, and says so in the owner's table.
    pub(crate) fn fell(mut self, table: &Table) {
        let view = table.view();
        if self.second.take().is_some_and(|mut second| second.dissolve().is_ok()) {
            view.second_tree().erase();
        }
        if self.dissolve().is_ok() {
            view.tree().erase();
        }
    }

    /// A tree on `ground` for the owner `pid` that began at `start`; nothing is made yet.
    pub(crate) fn plan(ground: Ground, purpose: Purpose, pid: Pid, start: StartTime) -> Self {
        Self::with_files(ground, purpose, pid, start, Rc::new(Real))
    }

    pub(super) fn with_files(
        ground: Ground,
        purpose: Purpose,
        pid: Pid,
        start: StartTime,
        files: Rc<dyn Files>,
    ) -> Self {
        let root = ground.dir.join(format!("divvy-{pid}-{}", start.0));
        let offers = match purpose {
            Purpose::Keep => Offers::look(&ground, &*files),
            _ => Offers::default(),
        };
        let enabled = SwitchedOn::default();
        let given = Given::default();
        let (users, stale) = (BTreeMap::new(), Stale::default());
        // In a cgroup that was ours alone, and divides now, nobody can be who is let go and may not be moved back.
        let lets_go = purpose.is_apart() || ground.enable != Enable::MoveAndControl;
        let migrator = Migrator::of(&ground).filter(|_| lets_go);
        Self {
            root,
            ground,
            purpose,
            inode: 0,
            enabled,
            files,
            made: false,
            offers,
            given,
            users,
            stale,
            off: Off::default(),
            disks: Vec::new(),
            disks_came: false,
            cpus: 1,
            divided: None,
            not_narrowed: None,
            upkeep: Upkeep::default(),
            second: None,
            migrator,
        }
    }

    /// What a table has to say of it.
    ///
    /// # Errors
    /// [`Error::System`] where a path is too long for a table.
    pub(crate) fn image(&self) -> Result<TreeImage> {
        let fixed = |path: &Path| {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
            FixedPath::new(bytes).ok_or_else(|| failed("note in the table", path, Errno::NAMETOOLONG))
        };
        let weighs = !self.purpose.is_apart() && self.ground.enable != Enable::Nothing;
        let cpu = weighs.then_some(Controller::Cpu);
        let disable = cpu.into_iter().chain(self.offers.to_be_put_on());
        Ok(TreeImage {
            root: fixed(&self.root)?,
            home: fixed(&self.ground.home)?,
            inode: self.inode,
            disable: disable.fold(SwitchedOn::default(), SwitchedOn::with),
        })
    }

    pub(super) fn write(&self, path: &Path, text: &str) -> Result<()> {
        self.files.write(path, text).map_err(|e| failed("write to", path, e))
    }

    /// Makes the root; for weights, puts the controller on and gives the root the weight of an ordinary process on each
    /// of `cpus` CPUs, as strangers see all clients together.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`]; drop the tree then.
    pub(crate) fn make(&mut self, cpus: usize) -> Result<()> {
        self.files.make(&self.root).map_err(|e| failed("make cgroup", &self.root, e))?;
        (self.made, self.cpus) = (true, cpus);
        self.inode = std::fs::metadata(&self.root).map_or(0, |m| m.ino());
        if self.purpose.is_apart() {
            return Ok(());
        }
        if self.ground.enable == Enable::MoveAndControl {
            let own = self.root.join("self");
            self.files.make(&own).map_err(|e| failed("make cgroup", &own, e))?;
            self.write(&own.join("cgroup.procs"), "0")?;
            // When it was found that nobody else was there, we may not have been split in two yet.
            if let Some(front) = self.front_end() {
                self.write(&own.join("cgroup.procs"), &front)?;
            }
        }
        if self.ground.knob == super::Knob::Weight {
            self.put_cpu_on()?;
        }
        for controller in [Controller::Memory, Controller::Io, Controller::Cpuset] {
            self.put_on(controller);
        }
        self.weigh_ours()
    }

    pub(super) fn put_cpu_on(&mut self) -> Result<()> {
        if self.ground.enable != Enable::Nothing {
            self.enabled = self.enabled.with(Controller::Cpu);
            self.write(&self.ground.dir.join("cgroup.subtree_control"), "+cpu")?;
        }
        self.write(&self.root.join("cgroup.subtree_control"), "+cpu")
    }

    /// Has all of us weigh what we are to, beside strangers.
    pub(super) fn weigh_ours(&self) -> Result<()> {
        let (_, high) = self.ground.knob.range();
        if self.ground.enable == Enable::MoveAndControl {
            // Beside us are leaves, of which the largest has as much: with an ordinary weight we would not be heard.
            self.weigh(&self.root.join("self"), high)?;
        }
        let weight = self.ground.knob.ordinary().saturating_mul(self.cpus.max(1) as u64).min(high);
        self.weigh(&self.root, weight)
    }

    /// Has a leaf weigh more than others, or what it is to again.
    ///
    /// # Errors
    /// As [`Tree::make`]; it weighs what it did then.
    pub(crate) fn prefer(&self, leaf: &Leaf, more: bool) -> Result<()> {
        let (_, high) = self.ground.knob.range();
        let weight = if more { leaf.weight.saturating_mul(PREFERRED).min(high) } else { leaf.weight };
        self.weigh(&leaf.dir, weight)
    }

    /// Puts a controller on for the leaves, where it can be had. Where it is refused after all, that is what there is to
    /// tell of it: CPU time is divided all the same.
    pub(super) fn put_on(&mut self, controller: Controller) {
        let Some(around) = self.offers.wanted(controller) else { return };
        let text = format!("+{controller}");
        if around {
            self.enabled = self.enabled.with(controller);
        }
        let mut dirs = around.then_some(&self.ground.dir).into_iter().chain([&self.root]);
        let done = dirs.try_for_each(|dir| self.write(&dir.join("cgroup.subtree_control"), &text));
        self.offers.became(controller, done);
        if controller == Controller::Cpuset && self.keeps_cpus() {
            self.not_narrowed = self.keep_all().err().map(|e| e.to_string());
        }
    }

    /// Our parent, if it is where we were: the front end that we were split from.
    fn front_end(&self) -> Option<String> {
        let parent = rustix::process::getppid()?.as_raw_nonzero().to_string();
        let procs = self.files.read(&self.ground.dir.join("cgroup.procs")).unwrap_or_default();
        procs.split_whitespace().any(|pid| pid == parent).then_some(parent)
    }

    /// Gives a cgroup a weight, and looks whether the kernel took it as it is.
    pub(super) fn weigh(&self, dir: &Path, weight: u64) -> Result<()> {
        let path = dir.join(self.ground.knob.file());
        self.write(&path, &weight.to_string())?;
        let kept = self.files.read(&path).map_err(|e| failed("read", &path, e))?;
        match kept.trim().parse::<u64>() {
            Ok(kept) if kept == weight => Ok(()),
            _ => {
                Err(Error::Malformed { object: path.display().to_string(), what: "the weight just written" })
            }
        }
    }

    /// A leaf for client number `client`, thawed.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`]; nothing is left of the leaf then.
    pub(crate) fn leaf(&self, client: usize) -> Result<Leaf> {
        self.leaf_in(&self.root, client)
    }

    /// The same in `around`: the root, or the cgroup of a user.
    pub(super) fn leaf_in(&self, around: &Path, client: usize) -> Result<Leaf> {
        let dir = around.join(format!("c{client}"));
        self.files.make(&dir).map_err(|e| failed("make cgroup", &dir, e))?;
        let leaf = self.open_leaf(&dir, client).map(|mut leaf| {
            // Where there can be none, signals hold.
            if let Some(Ok(second)) = self.second.as_ref().map(|second| second.leaf(client)) {
                leaf.hold = if second.freeze.is_some() { Hold::Freezer } else { Hold::Signals };
                leaf.second = Some(Box::new(second));
            }
            leaf
        });
        if leaf.is_err() {
            // Empty, and ours.
            let _ = rustix::fs::rmdir(&dir);
        }
        leaf
    }

    pub(super) fn open_leaf(&self, dir: &Path, client: usize) -> Result<Leaf> {
        let open = |name: &str| {
            let path = dir.join(name);
            let file = File::options().read(true).write(true).open(&path);
            file.map_err(|e| failed("open", &path, Errno::from_io_error(&e).unwrap_or(Errno::IO)))
        };
        let brake = self.ground.hierarchy.brake();
        let (mut freeze, mut behind, mut weight) = (None, None, self.ground.knob.ordinary());
        let mut hold = Hold::Weight;
        match &self.purpose {
            Purpose::Freeze => {
                let file = open(brake.name()).map_err(|e| match e.errno() {
                    Some(Errno::NOENT) => Error::Permission {
                        operation: "open",
                        object: dir.join(brake.name()).display().to_string(),
                        fix: match brake {
                            Brake::Freeze => "use Linux 5.2 or newer, or --backend signals",
                            Brake::State => "use --backend signals",
                        },
                        cause: Errno::NOENT,
                    },
                    _ => e,
                })?;
                (freeze, hold) = (Some((brake, file)), Hold::Freezer);
            }
            Purpose::Idle { weights, freezes } => {
                weight = weights.get(client).copied().unwrap_or(weight);
                self.weigh(dir, weight)?;
                behind = Some(open("cpu.idle")?);
                freeze = if *freezes { open(brake.name()).ok().map(|file| (brake, file)) } else { None };
                hold = if freeze.is_some() { Hold::Freezer } else { Hold::Signals };
            }
            Purpose::Weigh(weights) => {
                weight = weights.get(client).copied().unwrap_or(weight);
                self.weigh(dir, weight)?;
            }
            Purpose::Keep => {
                self.weigh(dir, weight)?;
                // Version 1 has none beside the cpu controller: there a pause holds nobody.
                freeze = open(brake.name()).ok().map(|file| (brake, file));
            }
        }
        let procs = Some(open("cgroup.procs")?);
        // Version 1 has a file of that name that says something else.
        let usage = match self.ground.knob {
            super::Knob::Weight => File::open(dir.join("cpu.stat")).ok(),
            super::Knob::Shares => None,
        };
        let (dir, given, due) = (dir.to_owned(), Given::default(), Due::default());
        let inode = std::fs::metadata(&dir).map_or(0, |m| m.ino());
        Ok(Leaf {
            client,
            dir,
            inode,
            due,
            hold,
            freeze,
            behind,
            procs,
            usage,
            weight,
            given,
            ceilings: Ceilings::default(),
            limit: None,
            parts: Vec::new(),
            told: false,
            user: None,
            second: None,
        })
    }

    /// The cgroup around all leaves.
    pub(crate) fn dir(&self) -> &Path {
        &self.root
    }

    /// The file by which leaves are frozen, where they can be.
    pub(crate) fn freezes_by(&self) -> &'static str {
        self.ground.hierarchy.brake().name()
    }

    /// Whether leaves are given memory.
    pub(crate) fn keeps_memory(&self) -> bool {
        self.offers.wanted(Controller::Memory).is_some()
    }

    /// Whether leaves can be kept to some CPUs.
    pub(crate) fn keeps_cpus(&self) -> bool {
        self.offers.wanted(Controller::Cpuset).is_some()
    }

    /// Whether it divides by weights that follow the clients' shares.
    pub(crate) fn follows(&self) -> bool {
        self.purpose.keeps()
    }

    /// Whether leaves can be put behind others.
    pub(crate) fn gives_way(&self) -> bool {
        matches!(self.purpose, Purpose::Idle { .. })
    }

    /// Whether leaves that can be put behind others hold who is in them, too, and count what is used.
    pub(crate) fn counts(&self) -> bool {
        let freezes = |second: &Self| second.purpose == Purpose::Freeze;
        matches!(self.purpose, Purpose::Idle { freezes: true, .. })
            || self.second.as_deref().is_some_and(freezes)
    }

    /// The cgroup of a process in the hierarchy that freezes; `None` for one that has ended.
    pub(crate) fn freezers_cgroup_of(&self, pid: Pid) -> Option<PathBuf> {
        self.second.as_deref().unwrap_or(self).ground.cgroup_of(pid)
    }

    /// Gives a leaf another weight; writes nothing where it has it.
    ///
    /// # Errors
    /// As [`Tree::make`]; the leaf keeps the weight that it had then.
    pub(super) fn reweigh(&self, leaf: &mut Leaf, weight: u64) -> Result<()> {
        if leaf.weight != weight {
            self.weigh(&leaf.dir, weight)?;
            leaf.weight = weight;
        }
        Ok(())
    }

    /// Whether the kernel divides among leaves, and so keeps limits too: one that only freezes does neither.
    pub(crate) fn keeps_limits(&self) -> bool {
        !self.purpose.is_apart()
    }

    /// Has the kernel keep a leaf within a limit, or lift that: `cpu.max`, of version 1 `cpu.cfs_quota_us`.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`]: the leaf keeps the limit that it had.
    pub(crate) fn limit_leaf(&self, leaf: &mut Leaf, limit: Option<CpuLimit>) -> Result<()> {
        let max = limit.map_or(CpuMax::NONE, CpuMax::of);
        match self.ground.knob {
            super::Knob::Weight => self.write(&leaf.dir.join(CPU_MAX.name()), &max.spell())?,
            super::Knob::Shares => {
                self.write(&leaf.dir.join("cpu.cfs_period_us"), &max.period.to_string())?;
                let quota = match max.quota {
                    Limit::At(quota) => quota.to_string(),
                    Limit::Max => "-1".to_owned(),
                };
                self.write(&leaf.dir.join("cpu.cfs_quota_us"), &quota)?;
            }
        }
        leaf.limit = limit;
        Ok(())
    }

    /// Moves a process that runs already into `leaf`, into a part for those that come from where it was; that is noted in
    /// the part, so that even a rescue knows where to move it back. Whether it was alive.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`]: the process stays where it is.
    pub(crate) fn take(&self, leaf: &mut Leaf, pid: Pid) -> Result<bool> {
        match self.part_for(leaf, pid)? {
            Some(part) => self.put(pid, &part),
            None => Ok(self.ground.cgroup_of(pid).is_some()),
        }
    }

    /// The part of `leaf` for a process by where it is; `None` where it is in the leaf, as who was born there, or has ended.
    ///
    /// # Errors
    /// As [`Tree::make`].
    pub(super) fn part_for(&self, leaf: &mut Leaf, pid: Pid) -> Result<Option<PathBuf>> {
        let Some(from) = self.ground.cgroup_of(pid) else { return Ok(None) };
        if from.starts_with(&leaf.dir) {
            return Ok(None);
        }
        let home = if from.starts_with(&self.root) { home_of(&from).unwrap_or(from) } else { from };
        if let Some((_, dir)) = leaf.parts.iter().find(|(of, _)| *of == home) {
            return Ok(Some(dir.clone()));
        }
        let dir = leaf.dir.join(format!("p{}", leaf.parts.len()));
        self.files.make(&dir).map_err(|e| failed("make cgroup", &dir, e))?;
        // An old kernel keeps no such note: then it goes back to where we are.
        let path = std::os::unix::ffi::OsStrExt::as_bytes(home.as_os_str());
        let _ = rustix::fs::setxattr(&dir, raw::HOME, path, rustix::fs::XattrFlags::empty());
        leaf.parts.push((home, dir.clone()));
        Ok(Some(dir))
    }

    /// Moves a process of `leaf` back to where it came from, or to where we are if that is gone. One that is elsewhere by
    /// now stays there.
    ///
    /// # Errors
    /// As [`Tree::take`].
    pub(crate) fn give_back(&self, leaf: &Leaf, pid: Pid) -> Result<bool> {
        let Some(from) = self.ground.cgroup_of(pid).filter(|from| from.starts_with(&leaf.dir)) else {
            return Ok(false);
        };
        let home = leaf.parts.iter().find(|(_, dir)| *dir == from).map(|(home, _)| home.as_path());
        match home.map(|home| self.put(pid, home)) {
            Some(Ok(done)) => Ok(done),
            _ => self.put(pid, &self.ground.home),
        }
    }

    fn put(&self, pid: Pid, dir: &Path) -> Result<bool> {
        let path = dir.join("cgroup.procs");
        match self.files.write(&path, &pid.as_raw_nonzero().to_string()) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => Err(failed("move a process to", dir, e)),
        }
    }

    /// Moves all that are in `leaf` back, and removes it.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`]; what is left goes with the tree.
    pub(crate) fn disband(&mut self, mut leaf: Leaf) -> Result<()> {
        if let (Some(second), Some(leaf)) = (&mut self.second, leaf.second.take()) {
            second.disband(*leaf)?;
        }
        let below = leaf.dir.strip_prefix(&self.root).unwrap_or(&leaf.dir);
        let name = std::os::unix::ffi::OsStrExt::as_bytes(below.as_os_str());
        let name = std::ffi::CString::new(name).unwrap_or_default();
        let done = self.image().and_then(|image| {
            raw::dissolve_leaf(&image, &name).map_err(|e| failed("take apart cgroup", &leaf.dir, e))
        });
        self.left(leaf.client, leaf.user);
        done
    }

    /// Removes `leaf`, in which nobody is any more. One that is busy for some moments longer is removed with the tree.
    pub(crate) fn remove(&mut self, mut leaf: Leaf) {
        if let (Some(second), Some(leaf)) = (&mut self.second, leaf.second.take()) {
            second.remove(*leaf);
        }
        let _ = rustix::fs::rmdir(&leaf.dir);
        self.left(leaf.client, leaf.user);
    }

    /// Thaws all leaves, moves home whoever is left in one, and removes everything.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`] where something is left; it can be tried again.
    pub(crate) fn dissolve(&mut self) -> Result<Undone> {
        if !self.made {
            return Ok(Undone::default());
        }
        let mut image = self.image()?;
        image.disable = self.enabled;
        let undone = raw::dissolve(&image);
        match undone.failed {
            None => {
                self.made = false;
                Ok(undone)
            }
            Some(e) => Err(failed("take apart cgroup", &self.root, e)),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What is left is in the table, for the rescue.
        let _ = self.dissolve();
    }
}

/// Where the processes of a part of a leaf were before.
fn home_of(part: &Path) -> Option<PathBuf> {
    let mut path = [0; raw::PATH_MAX];
    let length = rustix::fs::getxattr(part, raw::HOME, &mut path).ok()?;
    Some(PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.get(..length)?)))
}

#[cfg(test)]
mod tests;
