// Everything: scores in, distributions out.
#pragma once

#include "entropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error, and nothing below could be compiled
#include "entropic/array_view.h"
#include "entropic/attention.h"
#include "entropic/calibration.h"
#include "entropic/describe.h"
#include "entropic/entropy_control.h"
#include "entropic/half.h"
#include "entropic/input.h"
#include "entropic/losses.h"
#include "entropic/maps.h"
#include "entropic/matrix_view.h"
#include "entropic/measures.h"
#include "entropic/operation.h"
#include "entropic/perturb_max.h"
#include "entropic/row.h"
#include "entropic/row_error.h"
#include "entropic/sampling.h"
#include "entropic/simd.h"
#include "entropic/strided_rows.h"
#include "entropic/threads.h"
#include "entropic/transport.h"
#endif
