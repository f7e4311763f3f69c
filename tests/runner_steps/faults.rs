//! Every call into QNN fails once, at each place of a whole run: loading, a prompt, decoding.

use crate::fake_module::FakeModel;
use crate::fake_qnn::Qnn;
use crate::{by_hand, error_of, prompt, tokens};
use llama_runner::Status;
use llama_runner::qnn::QnnError;
use llama_runner::qnn::fake::Call;
use llama_runner::runner::{Runner, RunnerError, RunnerOptions};

fn run(runner: &mut Runner) -> llama_runner::Result<Vec<u64>> {
    by_hand(runner, &prompt(20), &tokens(4))
}

#[test]
fn each_qnn_call_that_fails_once_is_a_typed_error_and_the_next_attempt_works() {
    use Call::*;
    let calls = [
        LogCreate,
        BackendCreate,
        DeviceCreate,
        ContextCreateFromBinary,
        GraphRetrieve,
        GraphExecute,
        SystemContextCreate,
        SystemContextGetMetaData,
    ];
    let qnn = Qnn::new(FakeModel::default(), false);
    let want = qnn.model.greedy(&prompt(20), 4);
    assert_eq!(run(&mut qnn.load(RunnerOptions::default()).unwrap()).unwrap(), want);
    qnn.check_returned();
    let counts = calls.map(|call| (call, qnn.fake.calls(call) as u32));
    for (call, count) in counts {
        assert!(count > 0, "{call:?} was never made");
        for successes in 0..count {
            qnn.fake.fail_later(call, successes, 1003);
            let mut loaded = qnn.load(RunnerOptions::default());
            let error = match &mut loaded {
                Err(error) => std::mem::replace(error, RunnerError::NoLogits.into()),
                Ok(runner) => {
                    let error = run(runner).expect_err("the call fails in the turn");
                    assert_eq!(call, GraphExecute, "only execution is left for the turn");
                    assert_eq!(error_of(run(runner)), RunnerError::Poisoned);
                    runner.reset();
                    assert_eq!(run(runner).unwrap(), want, "in the same runner, after execution {successes}");
                    error
                }
            };
            let found = error.find::<QnnError>().unwrap_or_else(|| panic!("{call:?}: {}", error.chain()));
            assert_eq!((found.number(), error.status()), (1003, Status::BackendFailed), "{call:?}");
            drop(loaded);
            qnn.check_returned();
            assert_eq!(run(&mut qnn.load(RunnerOptions::default()).unwrap()).unwrap(), want, "again, after {call:?}");
            qnn.check_returned();
        }
    }
}
