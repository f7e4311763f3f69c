//! One execution plan from its flatbuffer table. What can only be judged against the rest of the program (indices,
//! ranges of planned memory, lengths of constants) is left to `verify`.

use super::error::{Place, PteError};
use super::program::{
    BackendDelegate, Chain, CompileSpec, EValue, ExecutionPlan, Instruction, OperatorName, ShapeDynamism, TensorData,
    TensorValue,
};
use super::schema::{
    allocation, boxed, buffer_device, call, chain, compile_spec, data_reference, delegate, execution_plan,
    extra_tensor_info, free, instruction_kind, jump_false, location, move_call, operator, tensor, union, value_kind,
};
use crate::base::flatbuffer::{Table, Tables};
use crate::base::storage::Blob;
use crate::tensor::DType;

type Result<T, E = PteError> = std::result::Result<T, E>;

/// The blobs that delegates refer to by index.
pub(super) struct DelegateData<'a> {
    /// Those inside the flatbuffer.
    pub inline: &'a [Blob],
    /// The file's segments.
    pub segments: &'a [Blob],
}

/// Decodes the plan in `table`.
pub(super) fn plan(table: Table, data: &DelegateData) -> Result<ExecutionPlan> {
    let method = table.required("name", table.string(execution_plan::NAME)?)?;
    let place = || Place::Method { method: method.into() };
    for device in table.tables(execution_plan::NON_CONST_BUFFER_DEVICE)? {
        cpu_only(device?.scalar(buffer_device::DEVICE_TYPE, 0)?, place)?;
    }
    let sizes = table.scalars::<i64>(execution_plan::NON_CONST_BUFFER_SIZES)?.unwrap_or_default();
    let non_const_buffer_sizes = sizes
        .iter()
        .enumerate()
        .map(|(buffer, &size)| u64::try_from(size).map_err(|_| PteError::BufferSize { place: place(), buffer, size }));
    Ok(ExecutionPlan {
        name: method.into(),
        values: values(table.tables(execution_plan::VALUES)?, method)?,
        inputs: indices(table.scalars::<i32>(execution_plan::INPUTS)?.unwrap_or_default(), "input", place)?,
        outputs: indices(table.scalars::<i32>(execution_plan::OUTPUTS)?.unwrap_or_default(), "output", place)?,
        chains: chains(table.tables(execution_plan::CHAINS)?, method)?,
        operators: table
            .tables(execution_plan::OPERATORS)?
            .map(|table| operator_name(table?))
            .collect::<Result<_>>()?,
        delegates: delegates(table.tables(execution_plan::DELEGATES)?, method, data)?,
        non_const_buffer_sizes: non_const_buffer_sizes.collect::<Result<_>>()?,
    })
}

/// An index that the file stores signed. Whether it is in range is for `verify` to say.
fn index(index: impl Into<i64>, what: &'static str, place: impl Fn() -> Place) -> Result<u32> {
    let index = index.into();
    u32::try_from(index).map_err(|_| PteError::NotAnIndex { place: place(), what, index })
}

fn indices(items: Vec<impl Into<i64>>, what: &'static str, place: impl Fn() -> Place) -> Result<Vec<u32>> {
    items.into_iter().map(|item| index(item, what, &place)).collect()
}

fn cpu_only(device: i8, place: impl Fn() -> Place) -> Result<()> {
    if device == 0 { Ok(()) } else { Err(PteError::Device { place: place(), device }) }
}

fn values(tables: Tables, method: &str) -> Result<Vec<EValue>> {
    let mut values = Vec::with_capacity(tables.len());
    for (index, table) in tables.enumerate() {
        let place = || Place::Value { method: method.into(), index };
        values.push(value(table?, &place)?);
    }
    // An optional tensor that is absent may be written as -1 or as the index of a null value.
    let nulls: Vec<bool> = values.iter().map(|value| *value == EValue::Null).collect();
    for value in &mut values {
        if let EValue::OptionalTensorList(items) = value {
            for item in items {
                *item = item.filter(|&index| nulls.get(index as usize) != Some(&true));
            }
        }
    }
    Ok(values)
}

fn value(table: Table, place: &impl Fn() -> Place) -> Result<EValue> {
    let tag = table.scalar(union::TAG, 0u8)?;
    if tag == value_kind::NULL {
        return Ok(EValue::Null);
    }
    let body = table.table(union::TABLE)?;
    let body = table.required("val", body)?;
    let item = boxed::ITEM;
    Ok(match tag {
        value_kind::INT => EValue::Int(body.scalar(item, 0)?),
        value_kind::BOOL => EValue::Bool(body.scalar(item, false)?),
        value_kind::DOUBLE => EValue::Double(body.scalar(item, 0.0)?),
        value_kind::TENSOR => EValue::Tensor(tensor_value(body, place)?),
        value_kind::STRING => EValue::String(body.required("string_val", body.string(item)?)?.into()),
        value_kind::INT_LIST => {
            let items: Vec<i64> = body.required("items", body.scalars(item)?)?;
            EValue::IntList(indices(items, "list item", place)?)
        }
        value_kind::DOUBLE_LIST => EValue::DoubleList(body.required("items", body.scalars(item)?)?),
        value_kind::BOOL_LIST => EValue::BoolList(body.required("items", body.scalars(item)?)?),
        value_kind::TENSOR_LIST => {
            let items: Vec<i32> = body.required("items", body.scalars(item)?)?;
            EValue::TensorList(indices(items, "list item", place)?)
        }
        value_kind::OPTIONAL_TENSOR_LIST => {
            let items: Vec<i32> = body.required("items", body.scalars(item)?)?;
            let optional = |item: i32| if item == -1 { Ok(None) } else { index(item, "list item", place).map(Some) };
            EValue::OptionalTensorList(items.into_iter().map(optional).collect::<Result<_>>()?)
        }
        tag => return Err(PteError::UnknownValueKind { place: place(), tag }),
    })
}

fn tensor_value(table: Table, place: &impl Fn() -> Place) -> Result<TensorValue> {
    let code = table.scalar(tensor::SCALAR_TYPE, 0i8)?;
    let dtype = DType::from_code(code).ok_or_else(|| PteError::UnknownDType { place: place(), code })?;
    let offset = table.scalar(tensor::STORAGE_OFFSET, 0i32)?;
    if offset != 0 {
        return Err(PteError::StorageOffset { place: place(), offset });
    }
    let sizes: Vec<i32> = table.required("sizes", table.scalars(tensor::SIZES)?)?;
    let sizes = sizes.iter().enumerate().map(|(dim, &size)| {
        usize::try_from(size).map_err(|_| PteError::Size { place: place(), dim, size: size.into() })
    });
    let dynamism = match table.scalar(tensor::SHAPE_DYNAMISM, 0i8)? {
        0 => ShapeDynamism::Static,
        1 => ShapeDynamism::DynamicBound,
        2 => ShapeDynamism::DynamicUnbound,
        code => return Err(PteError::UnknownDynamism { place: place(), code }),
    };
    let extra =
        table.table(tensor::EXTRA_TENSOR_INFO)?.map(|table| extra(table, place)).transpose()?.unwrap_or_default();
    Ok(TensorValue {
        dtype,
        sizes: sizes.collect::<Result<_>>()?,
        dim_order: table.required("dim_order", table.scalars(tensor::DIM_ORDER)?)?,
        dynamism,
        data: tensor_data(table, &extra, place)?,
        fully_qualified_name: extra.fully_qualified_name,
    })
}

/// What `ExtraTensorInfo` says; the default is what its absence says.
#[derive(Default)]
struct Extra {
    mutable_data_segment: u32,
    fully_qualified_name: Option<String>,
    external: bool,
}

fn extra(table: Table, place: &impl Fn() -> Place) -> Result<Extra> {
    cpu_only(table.scalar(extra_tensor_info::DEVICE_TYPE, 0)?, place)?;
    let segment = table.scalar(extra_tensor_info::MUTABLE_DATA_SEGMENTS_IDX, 0u64)?;
    let external = match table.scalar(extra_tensor_info::LOCATION, 0i8)? {
        location::TENSOR_SEGMENT => false,
        location::TENSOR_EXTERNAL => true,
        code => return Err(PteError::UnknownLocation { place: place(), code }),
    };
    Ok(Extra {
        mutable_data_segment: index(segment.min(i64::MAX as u64) as i64, "mutable data segment", place)?,
        fully_qualified_name: table.string(extra_tensor_info::FULLY_QUALIFIED_NAME)?.map(str::to_owned),
        external,
    })
}

fn tensor_data(table: Table, extra: &Extra, place: &impl Fn() -> Place) -> Result<TensorData> {
    let planned = table.table(tensor::ALLOCATION_INFO)?.map(planned).transpose()?;
    if extra.external {
        return match (&extra.fully_qualified_name, planned) {
            (None, _) => Err(PteError::ExternalWithoutName { place: place() }),
            (Some(name), _) if name.is_empty() => Err(PteError::ExternalWithoutName { place: place() }),
            (Some(_), None) => Ok(TensorData::External),
            (Some(_), Some((buffer, offset))) => Ok(TensorData::ExternalMutable { buffer, offset }),
        };
    }
    let stored = table.scalar(tensor::DATA_BUFFER_IDX, 0u32)?;
    Ok(match (planned, stored) {
        (None, 0) => TensorData::Unplanned,
        (None, index) => TensorData::Constant { index },
        (Some((buffer, offset)), stored) => TensorData::Planned {
            buffer,
            offset,
            initial: (stored > 0).then_some((extra.mutable_data_segment, stored)),
        },
    })
}

/// Buffer and offset.
fn planned(details: Table) -> Result<(u32, u64)> {
    let offset = u64::from(details.scalar(allocation::MEMORY_OFFSET_HIGH, 0u32)?) << 32
        | u64::from(details.scalar(allocation::MEMORY_OFFSET_LOW, 0u32)?);
    Ok((details.scalar(allocation::MEMORY_ID, 0)?, offset))
}

fn chains(tables: Tables, method: &str) -> Result<Vec<Chain>> {
    let mut chains = Vec::with_capacity(tables.len());
    for (chain, table) in tables.enumerate() {
        let tables = table?.tables(chain::INSTRUCTIONS)?;
        let mut instructions = Vec::with_capacity(tables.len());
        for (index, table) in tables.enumerate() {
            let place = || Place::Instruction { method: method.into(), chain, index };
            instructions.push(instruction(table?, place)?);
        }
        chains.push(Chain { instructions });
    }
    Ok(chains)
}

fn instruction(table: Table, place: impl Fn() -> Place) -> Result<Instruction> {
    let tag = table.scalar(union::TAG, 0u8)?;
    let body = table.table(union::TABLE)?;
    let body = table.required("instr_args", body)?;
    let field = |id: u16, what: &'static str| index(body.scalar(id, 0i32)?, what, &place);
    let args = || indices(body.required("args", body.scalars::<i32>(call::ARGS)?)?, "argument", &place);
    Ok(match tag {
        instruction_kind::KERNEL => Instruction::Kernel { operator: field(call::CALLEE, "operator")?, args: args()? },
        instruction_kind::DELEGATE => {
            Instruction::Delegate { delegate: field(call::CALLEE, "delegate")?, args: args()? }
        }
        instruction_kind::MOVE => {
            Instruction::Move { from: field(move_call::FROM, "source")?, to: field(move_call::TO, "destination")? }
        }
        instruction_kind::JUMP_FALSE => Instruction::JumpFalse {
            condition: field(jump_false::CONDITION, "condition")?,
            destination: field(jump_false::DESTINATION, "destination instruction")?,
        },
        instruction_kind::FREE => Instruction::Free { value: field(free::VALUE, "value")? },
        tag => return Err(PteError::UnknownInstruction { place: place(), tag }),
    })
}

fn operator_name(table: Table) -> Result<OperatorName> {
    Ok(OperatorName {
        name: table.required("name", table.string(operator::NAME)?)?.into(),
        overload: table.string(operator::OVERLOAD)?.unwrap_or_default().into(),
    })
}

fn delegates(tables: Tables, method: &str, data: &DelegateData) -> Result<Vec<BackendDelegate>> {
    let mut delegates = Vec::with_capacity(tables.len());
    for (index, table) in tables.enumerate() {
        let table = table?;
        let place = || Place::Delegate { method: method.into(), index };
        let reference = table.required("processed", table.table(delegate::PROCESSED)?)?;
        let (what, blobs) = match reference.scalar(data_reference::LOCATION, 0i8)? {
            location::INLINE => ("inline data", data.inline),
            location::SEGMENT => ("segment", data.segments),
            code => return Err(PteError::UnknownLocation { place: place(), code }),
        };
        let at = reference.scalar(data_reference::INDEX, 0u32)?;
        let processed = blobs.get(at as usize).cloned().ok_or_else(|| PteError::Index {
            place: place(),
            what,
            index: at.into(),
            count: blobs.len(),
        })?;
        delegates.push(BackendDelegate {
            id: table.required("id", table.string(delegate::ID)?)?.into(),
            processed,
            compile_specs: table
                .tables(delegate::COMPILE_SPECS)?
                .map(|table| compile_spec(table?))
                .collect::<Result<_>>()?,
        });
    }
    Ok(delegates)
}

fn compile_spec(table: Table) -> Result<CompileSpec> {
    Ok(CompileSpec {
        key: table.required("key", table.string(compile_spec::KEY)?)?.into(),
        value: table.scalars(compile_spec::VALUE)?.unwrap_or_default(),
    })
}
