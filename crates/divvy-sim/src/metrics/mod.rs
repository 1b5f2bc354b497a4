//! What is measured on a run: exact service errors, response times, fairness, and how sure a mean is.

mod fluid;
mod fraction;
mod record;
mod series;
mod stats;

pub use fluid::{ErrorRow, FluidErrors, ServiceError};
pub use fraction::Fraction;
pub use record::{ClientRow, ClientTable, GroupResponses, Responses, Run, RunLog, Schedule, fnv1a64};
pub use series::Series;
pub use stats::{BatchMeans, Estimate, Histogram, Welford, jain, student_t_975};
