// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions in double whose every bit is fixed by this code: only +, -, *, / in a
// written order, which IEEE 754 defines exactly. The C library's differ from version to version and
// from machine to machine, and what comes out of these decides bytes of batches.
//
// Each is within two units in the last place of the true value. Pure functions: thread-safe.

#pragma once

namespace batchd {

// Requires |x| <= 32.
double FixedSin(double x);
double FixedCos(double x);

// Requires |x| <= 700.
double FixedExp(double x);

// Requires x positive, finite and not subnormal.
double FixedLog(double x);

// The nearest integer, halves to the even one. Requires |x| < 2^31 - 1.
int RoundHalfEven(double x);

}  // namespace batchd
