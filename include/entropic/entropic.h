// Everything: scores in, distributions out.
#pragma once

#include "entropic/attention.h"
#include "entropic/calibration.h"
#include "entropic/entropy_control.h"
#include "entropic/half.h"
#include "entropic/input.h"
#include "entropic/losses.h"
#include "entropic/maps.h"
#include "entropic/matrix_view.h"
#include "entropic/measures.h"
#include "entropic/operation.h"
#include "entropic/perturb_max.h"
#include "entropic/row_error.h"
#include "entropic/sampling.h"
#include "entropic/simd.h"
#include "entropic/threads.h"
#include "entropic/transport.h"

#define ENTROPIC_VERSION "0.1.0"
