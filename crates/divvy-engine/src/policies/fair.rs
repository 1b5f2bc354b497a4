//! Parameters of the policies that divide by shares, and of the plain ones.

use divvy_policy::dispatch::{
    ParamError as Refused, drr, eevdf, fcfs, las, linux22, lottery, mlfb, rr, stride, vtrr, wf2q, wfq, wrr,
};

use super::factory::Maker;
use super::{ParamError, Params, Span, find};

type Made<P> = Result<P, ParamError>;

fn tie(params: &mut Params<'_>) -> Made<wfq::Tie> {
    params.choice(
        "tie",
        &[
            ("share", wfq::Tie::LargerShare),
            ("small", wfq::Tie::SmallerShare),
            ("id", wfq::Tie::Id),
            ("fifo", wfq::Tie::Fifo),
            ("lifo", wfq::Tie::Lifo),
            ("rr", wfq::Tie::RoundRobin),
        ],
    )
}

fn queue(params: &mut Params<'_>) -> Made<wfq::Queue> {
    params.choice("queue", &[("heap", wfq::Queue::Heap), ("list", wfq::Queue::List)])
}

impl Maker<'_> {
    /// As [`Maker::made`] for constructors that name the parameter alone; the range is the registry's.
    fn ranged<P>(self, made: Result<P, Refused>) -> Made<P> {
        let (name, given) = match &made {
            Ok(_) => ("", String::new()),
            Err(Refused::NoCpu) => ("cpus", self.context.cpus.to_string()),
            Err(Refused::Quantum(quantum)) => ("quantum", Span(quantum.0).to_string()),
            Err(Refused::Range(name)) => {
                (*name, self.spec.params.get(*name).map(ToString::to_string).unwrap_or_default())
            }
        };
        let info = find(&self.spec.name);
        let range = info
            .and_then(|info| info.params.iter().find(|param| param.name == name))
            .map(|param| param.range);
        self.params.finish()?;
        made.map_err(|_| ParamError {
            name: name.into(),
            message: format!("{given} is out of range, expected {}", range.unwrap_or("at least 1")),
        })
    }

    pub(super) fn wrr(mut self) -> Made<wrr::Wrr> {
        let order =
            self.params.choice("order", &[("desc", wrr::Order::LargestFirst), ("id", wrr::Order::ById)])?;
        let params = wrr::WrrParams { cpus: self.context.cpus, quantum: self.time("quantum")?, order };
        self.ranged(wrr::Wrr::new(params))
    }

    pub(super) fn drr(mut self) -> Made<drr::Drr> {
        let quantum = self.time("quantum")?;
        // A credit of one quantum, whatever its length: each round is worth share quanta.
        let credit = self.params.time("credit", Span(quantum.0))?.nanos();
        let params = drr::DrrParams { cpus: self.context.cpus, quantum, credit };
        self.ranged(drr::Drr::new(params))
    }

    pub(super) fn wfq(mut self) -> Made<wfq::Wfq> {
        let (tie, queue) = (tie(&mut self.params)?, queue(&mut self.params)?);
        let params = wfq::WfqParams { cpus: self.context.cpus, quantum: self.time("quantum")?, tie, queue };
        self.ranged(wfq::Wfq::new(params))
    }

    pub(super) fn wf2q(mut self) -> Made<wf2q::Wf2q> {
        let tie = tie(&mut self.params)?;
        let params = wf2q::Wf2qParams { cpus: self.context.cpus, quantum: self.time("quantum")?, tie };
        self.ranged(wf2q::Wf2q::new(params))
    }

    pub(super) fn stride(mut self) -> Made<stride::Stride> {
        let init =
            self.params.choice("init", &[("stride", stride::Init::Stride), ("zero", stride::Init::Zero)])?;
        let exact_or_number = |text: &str| match text {
            "exact" => Some(None),
            text => text.parse().ok().map(Some),
        };
        let stride1 =
            self.params.parse("stride1", "exact, or a whole number of at least 1", exact_or_number)?;
        let queue = queue(&mut self.params)?;
        let (cpus, quantum) = (self.context.cpus, self.time("quantum")?);
        let params = stride::StrideParams { cpus, quantum, init, stride1: stride1.flatten(), queue };
        self.ranged(stride::Stride::new(params))
    }

    pub(super) fn lottery(mut self) -> Made<lottery::Lottery> {
        let search = self
            .params
            .choice("search", &[("tree", lottery::Search::Tree), ("list", lottery::Search::List)])?;
        let compensation = self.params.choice(
            "compensate",
            &[("yes", lottery::Compensation::On), ("no", lottery::Compensation::Off)],
        )?;
        let seed = self.params.int("seed", 0, u64::MAX, self.context.seed)?;
        let (cpus, quantum) = (self.context.cpus, self.time("quantum")?);
        let params = lottery::LotteryParams { cpus, quantum, seed, search, compensation };
        self.ranged(lottery::Lottery::new(params))
    }

    pub(super) fn vtrr(mut self) -> Made<vtrr::Vtrr> {
        let reset = self
            .params
            .choice("reset", &[("incremental", vtrr::Reset::Incremental), ("whole", vtrr::Reset::Whole)])?;
        let rejoin = self
            .params
            .choice("rejoin", &[("paper", vtrr::Rejoin::Paper), ("strict", vtrr::Rejoin::Strict)])?;
        let insert = match self.count("classes", 0)? {
            0 => vtrr::Insert::Traverse,
            max_share => vtrr::Insert::Classes { max_share },
        };
        let (cpus, quantum) = (self.context.cpus, self.time("quantum")?);
        self.ranged(vtrr::Vtrr::new(vtrr::VtrrParams { cpus, quantum, reset, insert, rejoin }))
    }

    pub(super) fn fcfs(mut self) -> Made<fcfs::Fcfs> {
        let arrival =
            self.params.choice("arrival", &[("join", fcfs::Arrival::Join), ("wake", fcfs::Arrival::Wake)])?;
        let params = fcfs::FcfsParams { arrival, cpus: self.context.cpus };
        self.made(fcfs::Fcfs::new(params))
    }

    pub(super) fn rr(mut self) -> Made<rr::Rr> {
        let quanta =
            self.params.choice("quanta", &[("whole", rr::Quanta::Whole), ("grid", rr::Quanta::Grid)])?;
        let params = rr::RrParams { quantum: self.time("quantum")?, quanta, cpus: self.context.cpus };
        self.made(rr::Rr::new(params))
    }

    pub(super) fn las(mut self) -> Made<las::Las> {
        let since = self.params.choice("since", &[("join", las::Since::Join), ("wake", las::Since::Wake)])?;
        let params = las::LasParams { quantum: self.time("quantum")?, since, cpus: self.context.cpus };
        self.made(las::Las::new(params))
    }

    pub(super) fn mlfb(mut self) -> Made<mlfb::Mlfb> {
        let on_wake =
            self.params.choice("on_wake", &[("keep", mlfb::OnWake::Keep), ("top", mlfb::OnWake::Top)])?;
        let levels = self.count("levels", mlfb::MlfbParams::default().levels)?;
        let quantum = self.time("quantum")?;
        let params = mlfb::MlfbParams { quantum, levels, on_wake, cpus: self.context.cpus };
        self.made(mlfb::Mlfb::new(params))
    }

    pub(super) fn linux22(mut self) -> Made<linux22::Linux22> {
        let tick = self.time("tick")?;
        let ticks_per_share =
            self.count("ticks_per_share", linux22::Linux22Params::default().ticks_per_share)?;
        let params = linux22::Linux22Params { tick, ticks_per_share, cpus: self.context.cpus };
        self.made(linux22::Linux22::new(params))
    }

    pub(super) fn eevdf(mut self) -> Made<eevdf::Eevdf> {
        let preempt = self
            .params
            .choice("preempt", &[("slice", eevdf::Preempt::AtSlice), ("wake", eevdf::Preempt::OnWake)])?;
        let params = eevdf::EevdfParams { slice: self.time("slice")?, preempt, cpus: self.context.cpus };
        self.made(eevdf::Eevdf::new(params))
    }
}
