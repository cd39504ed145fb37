// Everything: scores in, distributions out.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error, and nothing below could be compiled
#include "isentropic/array_view.h"
#include "isentropic/attention.h"
#include "isentropic/calibration.h"
#include "isentropic/describe.h"
#include "isentropic/doubly_stochastic.h"
#include "isentropic/entropy_control.h"
#include "isentropic/estimators.h"
#include "isentropic/half.h"
#include "isentropic/input.h"
#include "isentropic/losses.h"
#include "isentropic/maps.h"
#include "isentropic/matrix_view.h"
#include "isentropic/measures.h"
#include "isentropic/operation.h"
#include "isentropic/perturb_max.h"
#include "isentropic/row.h"
#include "isentropic/row_error.h"
#include "isentropic/sampling.h"
#include "isentropic/simd.h"
#include "isentropic/strided_rows.h"
#include "isentropic/threads.h"
#include "isentropic/transport.h"
#endif
