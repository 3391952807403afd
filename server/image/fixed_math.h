// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions in double whose every bit is fixed by this code: only +, -, *, / in a
// written order, which IEEE 754 defines exactly. The C library's differ from version to version and
// from machine to machine, and what comes out of these decides bytes of batches.
//
// Those called Fixed are within two units in the last place of the true value. Those called Nearest
// give the double nearest to it, save where two are about equally near (one argument in some 2^30):
// what a good C library gives, and so what Python computes. Pure functions: thread-safe.

#pragma once

namespace batchd {

// Requires |x| <= 32.
double FixedSin(double x);
double FixedCos(double x);

// Requires |x| <= 700.
double FixedExp(double x);

// Requires x positive, finite and not subnormal.
double FixedLog(double x);

// Requires |x| <= 1000.
double NearestSin(double x);
double NearestCos(double x);
double NearestTan(double x);

// The angle within (-pi/2, pi/2), radians. Requires |x| <= 1e6.
double NearestArctan(double x);

// Degrees to radians and back, rounded as Python's math.radians and math.degrees.
inline double RadiansOf(double degrees) { return degrees * (0x1.921fb54442d18p+1 / 180.0); }
inline double DegreesOf(double radians) { return radians * (180.0 / 0x1.921fb54442d18p+1); }

// x to 15 decimals as Python's round(x, 15). Requires |x| <= 1.
double RoundTo15Decimals(double x);

// The nearest integer, halves to the even one. Requires |x| < 2^31 - 1.
int RoundHalfEven(double x);

}  // namespace batchd
